"""Digests of durable state, to tell how many different ones were reached."""

from collections.abc import Iterable, Mapping

from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import Reservation
from regionquota.core.slice import Holding
from regionquota.ports import StoredRegion


def digest_of_documents(documents: Iterable[Allocation], records: Mapping[Region, StoredRegion]) -> int:
    """What etcd holds."""
    known = tuple(
        (one.limit, one.pool, *one.slices.items(), *((m.source, m.target, m.amount) for m in one.moves), one.epoch)
        for one in documents
    )
    regions = tuple((one.record.weight, one.record.status, one.record.frozen is None) for one in records.values())
    return hash((known, regions))


def digest_of_hold(hold: Reservation) -> int:
    """Digests of holds are added up: their order does not matter."""
    return hash((hold.state, hold.amount, hold.actual))


def digest_of_region(held: Mapping[QuotaKey, Holding], holds: int, *, trusted: bool) -> int:
    """What a region's database holds, but for times and names: those make all states different."""
    holdings = tuple(
        (
            one.epoch,
            counter.slice,
            counter.available,
            counter.reserved,
            counter.used,
            counter.overdraft_issued - counter.overdraft_repaid,
        )
        for one in held.values()
        for counter in (one.counter,)
    )
    return hash((trusted, holdings, holds))
