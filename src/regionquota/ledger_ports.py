"""What the outside must offer to those who read the usage ledger, and to those who keep its house.

As the ports in `ports`: adapters implement these.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from regionquota.core.entries import Entry, EntryKind
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey


@dataclass(frozen=True, slots=True, order=True)
class LedgerPosition:
    """Where a reader of one tenant's usage ledger stands: behind line `id` of the transaction `written_by`."""

    written_by: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class LedgerLine:
    position: LedgerPosition
    entry: Entry


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """`following` is where to go on reading. `more` False: for now there is nothing behind it.

    A page may hold fewer lines than asked for, or none, while there is more: one look reads a bounded part.
    """

    lines: Sequence[LedgerLine]
    following: LedgerPosition
    more: bool


@dataclass(frozen=True, slots=True)
class UsageSum:
    """What the lines of one kind add up to; `delta` may be larger than any amount."""

    key: QuotaKey
    epoch: Epoch
    kind: EntryKind
    lines: int
    delta: int


class UsageLedger(Protocol):
    """A region's usage ledger, for those who read it. Every call may raise `StoreUnavailable`."""

    async def page(
        self, tenant: str, after: LedgerPosition, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> LedgerPage:
        """Lines behind `after`, ascending; nothing that is written later ever comes to stand before `following`."""
        ...

    async def last(
        self, tenant: str, most: int, *, resource: str | None = None, scope: str | None = None
    ) -> Sequence[LedgerLine]:
        """The newest lines, ascending. What is being written meanwhile may be missing between them."""
        ...

    def day(self, day: date, tenant: str | None = None) -> AsyncGenerator[Sequence[LedgerLine], None]:
        """All lines of a day (UTC), by tenant, in parts of bounded size. Nothing is held open between two parts."""
        ...

    async def sums(self, day: date, tenant: str | None = None) -> Sequence[UsageSum]:
        """What a day adds up to by quota, epoch and kind."""
        ...

    async def kept_since(self) -> date | None:
        """The first day (UTC) that is still there whole; None: nothing was ever dropped."""
        ...


class LedgerArchive(Protocol):
    """Where days of the usage ledger go before they are dropped."""

    async def keep(self, day: date, parts: AsyncGenerator[Sequence[LedgerLine], None]) -> int:
        """Durable when it returns; how many lines that were. Keeping a day again replaces it. Raises `OSError`."""
        ...


@dataclass(frozen=True, slots=True)
class Ahead:
    """For how many whole days to come a table has partitions; and rows that have none, counted up to a bound."""

    table: str
    days: int
    homeless_rows: int


class LedgerUpkeep(Protocol):
    """The partitions of what grows with time, and its end. Every call may raise `StoreUnavailable`.

    Any number of servers may do this at once: one at a time does, the others pass over it. What would have to wait
    for a lock is given up, and is done at a later call. Memory has no partitions, so there is no stand-in.
    """

    async def make_ahead(self, now: float, days: int, weeks: int) -> Sequence[Ahead]:
        """Make partitions for today and `days` more, for this week and `weeks` more (UTC), where there are none."""
        ...

    async def days_before(self, day: date) -> Sequence[date]:
        """The days before `day` that have a partition of the usage ledger, ascending."""
        ...

    async def drop_day(self, day: date, lines: int | None = None) -> bool:
        """Drop a day of the usage ledger, keeping what it adds up to. False: not now.

        `lines` is how many were archived: a day that holds another number is not dropped.
        """
        ...

    async def drop_reservations(self, before: float) -> int:
        """Drop the weeks that ended by `before` in which nothing is unsettled or was settled since `before`."""
        ...

    async def forget(self, before: float, unheard_since: float, most: int) -> int:
        """Delete up to `most` each of what was answered before `before` (adjustments, reservations that have no
        partition) and of the meter readings without a word since `unheard_since`. Returns how many.
        """
        ...
