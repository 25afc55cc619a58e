"""RegionStore in memory: the same `decide` and `apply`, with dictionaries for tables.

Each call is one step: it never awaits, so a simulation decides what happens between two calls.
"""

from collections import Counter as Sums
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from regionquota.core.allocation import Allocation
from regionquota.core.balances import Closed, Loaded, MeterKey, RequestKey, Writes, turn
from regionquota.core.commands import Adjustment, Command, Expire, Outcome, QuotaCommand, Reading, Reserve, Settled
from regionquota.core.counter import Counter
from regionquota.core.entries import Entry, EntryKind
from regionquota.core.history import Bond, Sight, Standing
from regionquota.core.ledger import decide
from regionquota.core.periods import Epoch
from regionquota.core.quota import QuotaKey, Region
from regionquota.core.reservation import DUE, HOLDING, Reservation, State
from regionquota.core.slice import Holding, hear, refuse_contradiction
from regionquota.errors import NotTrusted, StoreUnavailable, WentBackwards
from regionquota.ports import Backlog, BalanceCheck, Expired, Incarnation, Resharding, SliceEntry

_NEVER: Final = -1
_BALANCE: Final = {EntryKind.OVERDRAFT: "overdraft_issued", EntryKind.REPAY: "overdraft_repaid"}
"""What an entry's delta is added to, where that is not `used`."""
_SUMMED: Final = ("reserved", "used", *_BALANCE.values())


@dataclass(slots=True)
class MemoryRegionStore:
    region: Region
    _holdings: dict[QuotaKey, Holding] = field(default_factory=dict)
    _closed: Closed = field(default_factory=dict)
    _reservations: dict[str, Reservation] = field(default_factory=dict)
    _requests: dict[RequestKey, str] = field(default_factory=dict)
    _adjustments: dict[RequestKey, Adjustment] = field(default_factory=dict)
    _readings: dict[MeterKey, Reading] = field(default_factory=dict)
    _usage: list[Entry] = field(default_factory=list)
    _slices: list[tuple[SliceEntry, Epoch]] = field(default_factory=list)
    life: int = 0
    trusted: int = 0
    """The incarnation that the server is in, and the one that was compared with etcd: as at first."""
    stands: Standing | None = None
    sight: Sight = field(default_factory=Sight)

    @property
    def entries(self) -> Sequence[Entry]:
        """The usage ledger, in the order of writing."""
        return self._usage

    @property
    def counters(self) -> Mapping[tuple[QuotaKey, Epoch], Counter]:
        """Of the current epochs, and of those that have ended."""
        return {(key, held.epoch): held.counter for key, held in self._holdings.items()} | self._closed

    @property
    def held(self) -> Mapping[QuotaKey, Holding]:
        return self._holdings

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        return self._reservations

    def copy(self) -> "MemoryRegionStore":
        """What is done to one is not done to the other."""
        return MemoryRegionStore(
            self.region,
            dict(self._holdings),
            dict(self._closed),
            dict(self._reservations),
            dict(self._requests),
            dict(self._adjustments),
            dict(self._readings),
            list(self._usage),
            list(self._slices),
            self.life,
            self.trusted,
            self.stands,
            self.sight,
        )

    def fail_over(self, replica: "MemoryRegionStore") -> None:
        """Begin a new incarnation, which knows what `replica` does: an earlier copy of this store."""
        life, known = self.life + 1, replica.copy()
        for field_ in fields(self):
            setattr(self, field_.name, getattr(known, field_.name))
        self.life = life

    def summed_up(self, ended: int) -> "MemoryRegionStore":
        """The same balances with the shortest histories that explain them; of holds and adjustments that have ended,
        the last `ended`.
        """
        deltas = Sums[tuple[QuotaKey, Epoch, EntryKind]]()
        for line in self._usage:
            deltas[line.key, line.epoch, line.kind] += line.delta
        over = [name for name, held in self._reservations.items() if held.state not in HOLDING]
        dropped = set(over[: max(0, len(over) - ended)])
        return MemoryRegionStore(
            self.region,
            dict(self._holdings),
            dict(self._closed),
            {name: held for name, held in self._reservations.items() if name not in dropped},
            {request: name for request, name in self._requests.items() if name not in dropped},
            dict(list(self._adjustments.items())[-ended:]),
            dict(self._readings),
            [Entry(*group, delta, 0.0) for group, delta in deltas.items() if delta],
            list({(entry.key, at): (entry, at) for entry, at in self._slices}.values()),
            self.life,
            self.trusted,
            self.stands,
            self.sight,
        )

    async def transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        if self.life != self.trusted and any(isinstance(command, Reserve) for command in batch):
            raise NotTrusted("this incarnation was not compared with etcd yet")
        return self._transact(batch, now)

    def _transact(self, batch: Sequence[Command], now: float) -> Sequence[Outcome]:
        named = self._named(batch)
        loaded = Loaded(
            {key: held for key, held in self._holdings.items() if key in named},
            dict(self._closed),
            dict(self._reservations),
            dict(self._requests),
            dict(self._adjustments),
            dict(self._readings),
        )
        outcomes, writes = decide(loaded, batch, now)
        self._store(writes)
        return outcomes

    def _named(self, batch: Sequence[Command]) -> set[QuotaKey]:
        """The quotas that a batch works on; as in Postgres, it sees no others."""
        keys: set[QuotaKey] = set()
        for command in batch:
            if isinstance(command, QuotaCommand):
                keys.update(command.keys)
            elif known := self._reservations.get(command.reservation_id):
                keys.update(line.key for line in known.lines)
        return keys

    async def expire(self, now: float, most: int) -> Expired:
        due = sorted((held.expires_at, held.id) for held in self._due(now))[:most]
        ended = [one for one in self._transact([Expire(name) for _, name in due], now) if isinstance(one, Settled)]
        units = Sums[QuotaKey]()
        for one in ended:
            if one.reservation.state is State.EXPIRED:
                units.update({line.key: line.amount for line in one.reservation.lines})
        return Expired(len(ended), units, now - due[0][0] if due else 0.0)

    async def overdue(self, now: float) -> float | None:
        return min((held.expires_at for held in self._due(now)), default=None)

    async def unknown(
        self, most: int, *, tenant: str | None = None, after: Reservation | None = None
    ) -> Sequence[Reservation]:
        found = [held for held in self._unknown() if tenant in (None, held.key.tenant)]
        if after is not None:
            found = [held for held in found if (held.expires_at, held.id) > (after.expires_at, after.id)]
        return sorted(found, key=lambda held: (held.expires_at, held.id))[:most]

    async def unknown_backlog(self) -> Backlog:
        found = self._unknown()
        return Backlog(len(found), min((held.expires_at for held in found), default=None))

    def _unknown(self) -> Sequence[Reservation]:
        return [held for held in self._reservations.values() if held.state is State.UNKNOWN]

    async def incarnation(self) -> Incarnation:
        return Incarnation(str(self.life), self.life == self.trusted)

    async def trust(self, name: str) -> bool:
        if name == str(self.life):
            self.trusted = self.life
        return name == str(self.life)

    async def apply(
        self,
        key: QuotaKey,
        allocation: Allocation,
        revision: int,
        now: float,
        *,
        within: str | None = None,
        is_evicted: bool = False,
    ) -> Holding | None:
        if within not in (None, str(self.life)):
            raise StoreUnavailable("the server is in another incarnation by now")
        before = self._holdings.get(key)
        is_trusted = within is None and self.life == self.trusted
        changed = hear(
            before, key, allocation, revision, self.region, now, is_trusted=is_trusted, is_evicted=is_evicted
        )
        if changed is None or changed == before:
            return changed
        closed, entries = turn(before, changed, now)
        self._closed.update(closed)
        self._usage += entries
        self._holdings[key] = changed
        was = 0 if before is None else before.slice
        if changed.slice != was:
            moves = [{"id": m.id, "to": m.target, "amount": m.amount} for m in allocation.moves_from(self.region)]
            entry = SliceEntry(len(self._slices) + 1, now, key, revision, was, changed.slice, moves)
            self._slices.append((entry, changed.epoch))
        return changed

    def require_standing(self, bond: Bond, key: QuotaKey, allocation: Allocation, revision: int) -> None:
        """What goes before `apply` where a process is bound."""
        self.require_bound(bond)
        if self.life == self.trusted and not bond.is_evicted:
            try:
                refuse_contradiction(self._holdings.get(key), allocation, revision, self.region)
            except WentBackwards as error:
                bond.seen.contradict(str(error))
                raise

    def require_bound(self, bond: Bond) -> None:
        if bond.standing is None or bond.standing != self.stands:
            raise StoreUnavailable(f"the slices belong to {self.stands} by now")

    async def standing(self) -> Standing | None:
        return self.stands

    async def recall(self) -> tuple[Standing | None, Sight]:
        newest = max((held.revision for held in self._holdings.values()), default=0)
        return self.stands, Sight(self.sight.cluster, max(self.sight.revision, newest))

    async def adopt(self, before: Standing | None, standing: Standing, *, distrust: bool = False) -> bool:
        if self.stands != before:
            return False
        if before is not None and before.history != standing.history:
            self.sight = Sight()
            for key, held in self._holdings.items():
                self._holdings[key] = replace(held, revision=-abs(held.revision))
        if distrust or standing.evictions != (0 if before is None else before.evictions):
            self.trusted = _NEVER
        if before is None and not self._holdings:
            standing = Standing(standing.history, standing.evictions, standing.evictions)
        self.stands = standing
        return True

    async def remember(self, history: str, sight: Sight) -> None:
        if self.stands is not None and self.stands.history == history:
            self.sight = Sight(sight.cluster, max(self.sight.revision, sight.revision))

    async def holding(self, key: QuotaKey) -> Holding | None:
        return self._holdings.get(key)

    async def holdings(self, tenant: str | None = None) -> Sequence[Holding]:
        return [held for key, held in sorted(self._holdings.items()) if tenant in (None, key.tenant)]

    async def holdings_after(self, key: QuotaKey | None, most: int) -> Sequence[Holding]:
        return [self._holdings[one] for one in sorted(self._holdings) if key is None or one > key][:most]

    async def holdings_of(self, keys: Sequence[QuotaKey]) -> Sequence[Holding]:
        return [self._holdings[key] for key in keys if key in self._holdings]

    async def reservation(self, reservation_id: str) -> Reservation | None:
        return self._reservations.get(reservation_id)

    async def reservation_of_request(self, tenant: str, request_id: str) -> Reservation | None:
        return self._reservations.get(self._requests.get((tenant, request_id), ""))

    async def slice_history(self, after: int, most: int, key: QuotaKey | None = None) -> Sequence[SliceEntry]:
        later = [entry for entry, _ in self._slices if entry.id > after and key in (None, entry.key)]
        return later[:most]

    async def rebalance_shards(self, now: float) -> Resharding:  # noqa: ARG002 - nobody else writes here
        return Resharding()

    async def check_balances(self) -> Sequence[BalanceCheck]:
        sums = self._sums()
        return [
            BalanceCheck(*at, counter, self._replay(sums, *at), self._guaranteed(*at))
            for at, counter in sorted(self.counters.items(), key=itemgetter(0))
        ]

    def _due(self, now: float) -> Sequence[Reservation]:
        return [held for held in self._reservations.values() if held.state in DUE and held.expires_at <= now]

    def _store(self, writes: Writes) -> None:
        self._holdings.update(writes.holdings)
        self._closed.update(writes.closed)
        self._reservations.update(writes.created)
        self._reservations.update(writes.changed)
        for new in writes.created.values():
            self._requests[new.key.tenant, new.request_id] = new.id
        for adjustment in writes.adjustments:
            self._adjustments[adjustment.key.tenant, adjustment.request_id] = adjustment
        self._readings.update(writes.readings)
        self._usage += writes.entries

    def _guaranteed(self, key: QuotaKey, epoch: Epoch) -> int:
        holding = self._holdings[key]
        return holding.guaranteed if holding.epoch == epoch else 0

    def _sums(self) -> dict[tuple[QuotaKey, Epoch, str], int]:
        """What the open holds and the usage ledger add up to, by balance."""
        sums: dict[tuple[QuotaKey, Epoch, str], int] = {}
        for held in self._reservations.values():
            if held.state in HOLDING:
                for line in held.lines:
                    at = line.key, line.epoch, "reserved"
                    sums[at] = sums.get(at, 0) + line.amount
        for entry in self._usage:
            at = entry.key, entry.epoch, _BALANCE.get(entry.kind, "used")
            sums[at] = sums.get(at, 0) + entry.delta
        return sums

    def _replay(self, sums: Mapping[tuple[QuotaKey, Epoch, str], int], key: QuotaKey, epoch: Epoch) -> dict[str, int]:
        replayed = {name: sums.get((key, epoch, name), 0) for name in _SUMMED}
        slices = (entry.after for entry, at in reversed(self._slices) if entry.key == key and at <= epoch)
        replayed["slice"] = next(slices, 0)
        current = self._holdings[key].epoch == epoch
        replayed["guaranteed"] = (
            sum(held.lien for held in self._holdings.values() if held.lien and held.parent == key) if current else 0
        )
        return replayed
