"""What must hold after every step. Only what a step may have changed is looked at again."""

from collections.abc import Iterable, Mapping

from regionquota.adapters.memory.coordination import MemoryCoordination
from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.allocation import Allocation, VersionedLimit
from regionquota.core.history import Phase
from regionquota.core.quota import QuotaKey, Region
from regionquota.explorer.digests import digest_of_documents
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.region_checks import At, RegionChecks
from regionquota.ports import StoredRegion


class Checks:
    """Everything that is looked at, with the largest limit that was in force since the run began."""

    def __init__(
        self, etcd: MemoryCoordination, stores: Mapping[Region, MemoryRegionStore], largest: Mapping[QuotaKey, int]
    ) -> None:
        self.regions = {region: RegionChecks(store) for region, store in stores.items()}
        self.largest = dict(largest)
        self.documents: dict[QuotaKey, tuple[int, Allocation]] = {}
        self.records: Mapping[Region, StoredRegion] = {}
        self.joined: list[Region] = []
        self.revision = 0
        self._digest: int | None = None
        self._history = etcd.history
        self._lost: frozenset[str] = frozenset()
        """Histories of which etcd has forgotten something: what it says is less than what was given."""
        self._granted_since: Mapping[QuotaKey, int] = {}
        """The snapshot that etcd was restored as was taken."""
        self._etcd = etcd
        self.look_at_etcd()
        self.joined.clear()

    def fork(self, etcd: MemoryCoordination) -> "Checks":
        """The same knowledge, of an etcd that is the same so far; of the regions, see `open`."""
        other = Checks.__new__(Checks)
        known = other.__dict__
        known.update(self.__dict__)
        known["_etcd"] = etcd
        for name in ("regions", "largest", "documents", "joined"):
            known[name] = known[name].copy()
        return other

    def open(self, region: Region, store: MemoryRegionStore) -> None:
        """From now on `store`, which is the same so far, may be written to."""
        self.regions[region] = self.regions[region].fork(store)

    def digest(self) -> int:
        """Of all that is durable."""
        if self._digest is None:
            documents = [document for _, document in self.documents.values()]
            self._digest = digest_of_documents(documents, self.records)
        return hash((self._digest, *[region.digest() for region in self.regions.values()]))

    def look_at_etcd(self) -> bool:
        """Whether any document is another than it was."""
        etcd = self._etcd
        if etcd.revision == self.revision:
            return False
        self.revision = etcd.revision
        changed = False
        for stored in etcd.documents:
            known = self.documents.get(stored.key)
            if known is not None and known[0] == stored.revision:
                continue
            assert stored.allocation is not None
            self._look_at_document(stored.key, None if known is None else known[1], stored.allocation)
            if self._granted_since:
                self._note_what_may_be_granted_again(stored.key)
            self.documents[stored.key] = stored.revision, stored.allocation
            changed = True
        if self.records != etcd.records:
            self.records = dict(etcd.records)
            self._digest = None
        if changed:
            self._digest = None
        if changed or self._history != etcd.history:
            self._history = etcd.history
            self._look_at_slices(self.regions)
        return changed

    def _note_what_may_be_granted_again(self, key: QuotaKey) -> None:
        """Before anybody who knows better has looked, a document was written by somebody who cannot know: it does not
        look old any more. What that costs has a bound.
        """
        history = self._etcd.history[1]
        if history is not None and history.phase is Phase.RUNNING and history.name in self._lost:
            self.largest[key] += self._granted_since.get(key, 0)
            self._granted_since = {**self._granted_since, key: 0}

    def etcd_went_back(self) -> None:
        """What it says now, it says without having forgotten."""
        etcd = self._etcd
        names = {history.name for _, history in (self._history, etcd.history) if history is not None}
        self._lost |= names
        self.documents = {
            stored.key: (stored.revision, stored.allocation) for stored in etcd.documents if stored.allocation
        }
        self.revision, self.records, self._history = etcd.revision, dict(etcd.records), etcd.history
        self._digest = None
        self._granted_since = {
            key: sum(max(0, one.held[key].slice - known.slice_of(region)) for region, one in self._holding(key))
            for key, (_, known) in self.documents.items()
        }

    def _holding(self, key: QuotaKey) -> Iterable[tuple[Region, RegionChecks]]:
        return ((region, one) for region, one in self.regions.items() if key in one.held)

    def _says_what_is_owned(self, region: Region) -> bool:
        """Whether B can be asked of it: its slices are what they are by this etcd's word, as far as it goes."""
        standing = self.regions[region].store.stands
        if standing is None or (not self._lost and not self.is_gone(region)):
            return True
        history = self._history[1]
        return (
            history is not None
            and history.phase is Phase.RUNNING
            and history.name not in self._lost
            and history.name == standing.history
            and not self.is_gone(region)
        )

    def is_gone(self, region: Region) -> bool:
        """Evicted, and not back so far: its database has not obeyed, and spends nothing."""
        stored, standing = self.records.get(region), self.regions[region].store.stands
        eviction = None if stored is None else stored.record.eviction
        return eviction is not None and standing is not None and standing.evictions < eviction.number

    def _look_at_document(self, key: QuotaKey, before: Allocation | None, now: Allocation) -> None:
        if now.pool + now.retired_units + sum(now.slices.values()) != now.limit:
            raise Violation(Invariant.ADDS_UP, f"{key}: {now}")
        self.largest[key] = max(self.largest.get(key, 0), now.limit)
        if before is not None:
            if _version(now.plan) < _version(before.plan) or _version(now.override) < _version(before.override):
                said = f"{before.plan}, {before.override} -> {now.plan}, {now.override}"
                raise Violation(Invariant.TIME, f"an older limit came into force for {key}: {said}")
            self.joined += [region for region in now.slices if region not in before.slices]

    def look_at_store(self, region: Region, now: float) -> bool:
        """Whether it is another than it was."""
        known = self.regions[region]
        slices, spent = known.slices, known.spent
        changed = known.look(now)
        if known.slices is not slices:
            self._look_at_slices((region,))
        if known.spent is not spent or known.slices is not slices:
            self._look_at_promise()
        return changed

    def _look_at_slices(self, regions: Iterable[Region]) -> None:
        for region in regions:
            if not self._says_what_is_owned(region):
                continue
            for key, held in self.regions[region].slices.items():
                known = self.documents.get(key)
                owned = 0 if known is None else known[1].slices.get(region, 0)
                if held > owned:
                    raise Violation(Invariant.OWNED, f"{region} holds {held} of {key} and owns {owned}")

    def _look_at_promise(self) -> None:
        spent: dict[At, int] = {}
        held: dict[QuotaKey, int] = {}
        for region, one in self.regions.items():
            for at, units in one.spent.items():
                spent[at] = spent.get(at, 0) + units
            if self.is_gone(region):
                continue
            for key, slice_ in one.slices.items():
                held[key] = held.get(key, 0) + slice_
        for (key, epoch), units in spent.items():
            if units > self.largest[key]:
                said = f"{units} of {key} were admitted in epoch {epoch}, the limit was at most {self.largest[key]}"
                raise Violation(Invariant.PROMISE, said)
        for key, units in held.items():
            if units > self.largest[key]:
                raise Violation(
                    Invariant.PROMISE, f"{units} of {key} are held, the limit was at most {self.largest[key]}"
                )


def _version(word: VersionedLimit | None) -> int:
    return 0 if word is None else word.version
