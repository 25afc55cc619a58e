"""Ends holds whose time ran out. Several sweepers over the same rows do no harm: one wins each hold."""

from collections.abc import Callable

from regionquota.core.commands import Expire, Settled
from regionquota.core.quota import QuotaKey
from regionquota.ports import Clock, RegionStore


async def sweep(
    store: RegionStore, clock: Clock, batch: int, freed: Callable[[QuotaKey, int], None]
) -> tuple[int, float]:
    """End up to `batch` holds in one transaction. Returns how many, and by how many seconds the oldest was late."""
    now = clock.now()
    due = await store.expired(now, batch)
    if not due:
        return 0, 0.0
    lag = now - min(at for _, at in due)
    outcomes = await store.transact([Expire(name) for name, _ in due], now)
    ended = [one.reservation for one in outcomes if isinstance(one, Settled) and not one.replayed]
    for reservation in ended:
        freed(reservation.key, reservation.amount)
    return len(ended), lag


async def sweep_all(
    store: RegionStore, clock: Clock, batch: int, freed: Callable[[QuotaKey, int], None]
) -> tuple[int, float]:
    """Sweep until nothing is due. Returns the total, and the largest lag in seconds."""
    total, worst = 0, 0.0
    while True:
        ended, lag = await sweep(store, clock, batch, freed)
        total, worst = total + ended, max(worst, lag)
        if ended < batch:
            return total, worst
