"""decide: what a batch of commands does to a region's balances. Pure; every store calls it inside one transaction."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from regionquota.core import counter as counters
from regionquota.core.balances import Balances, Loaded, Writes
from regionquota.core.commands import (
    Adjust,
    Command,
    Commit,
    Expire,
    Extend,
    Meter,
    Outcome,
    Pledge,
    Release,
    Reserve,
    Start,
)
from regionquota.core.corrections import Corrections
from regionquota.core.entries import Cause, EntryKind
from regionquota.core.holds import Holds
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey


def decide(loaded: Loaded, batch: Sequence[Command], now: float) -> tuple[list[Outcome], Writes]:
    """One outcome per command, in order, each command seeing what those before it did; `loaded` is used up.

    `now` is in seconds since 1970.
    """
    writes = Writes()
    balances = Balances(loaded, writes, now)
    holds = Holds(loaded, writes, balances, now)
    corrections = Corrections(loaded, writes, balances, now)
    return [_execute(command, holds, corrections) for command in batch], writes


def free_expired(loaded: Loaded, freed: Mapping[tuple[QuotaKey, Epoch], int], now: float) -> Writes:
    """Give back the sums of holds that a store has ended by itself, many at a time."""
    writes = Writes()
    balances = Balances(loaded, writes, now)
    for (key, epoch), amount in freed.items():
        changed = counters.release(balances.counter(key, epoch), amount)
        balances.change(key, epoch, changed, Cause(EntryKind.COMMIT, now, reason="expired"))
    return writes


def _execute(command: Command, holds: Holds, corrections: Corrections) -> Outcome:
    match command:
        case Reserve():
            return holds.reserve(command)
        case Start():
            return holds.start(command)
        case Commit():
            return holds.commit(command)
        case Release():
            return holds.release(command)
        case Extend():
            return holds.extend(command)
        case Expire():
            return holds.expire(command)
        case Adjust():
            return corrections.adjust(command)
        case Meter():
            return corrections.meter(command)
        case Pledge():
            return corrections.pledge(command)
        case _:
            assert_never(command)
