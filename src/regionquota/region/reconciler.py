"""Compares what the ledger says is in use with sources of truth, and acts on the difference.

Small differences of allocated quotas are adjusted, large ones become cases for a person (see `case_work`). Any number
of servers may do this at once: one at a time holds a source's lease, and what two do all the same is done once,
because every adjustment is named after the count that it follows from.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

from regionquota.core.commands import Adjusted, Invalid, RequestConflict
from regionquota.core.periods import TIMELESS
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reconciling import CaseState, Judgement, Sighting, Verdict, judge, request_id_of
from regionquota.errors import InvalidRequest, SourceUnavailable
from regionquota.ports import Clock, RegionStore
from regionquota.reconciling_ports import CaseStore, Totals
from regionquota.region.case_work import CaseWork
from regionquota.region.counts import Adjust, Done, Finding, Report, Source, State
from regionquota.region.period_close import PeriodClose

LEASE_S: Final = 60.0
"""A server that stops in mid-run keeps the others from the source for so long. Prolonged before each change."""
MAX_AGE_S: Final = 86_400.0
"""An older snapshot is not compared: too much has happened since."""
MAX_OPEN_CASES: Final = 100_000
"""That one run knows of; the others are superseded by a later run."""


class Reconciler:
    """`above` names the quotas that are charged with another, `kind_of` what kind a quota is that is not used here.

    `settle_s`: how far apart in time the ledger and the world may be. `after_close_s`: how long after its end a period
    is compared. `holder` is this server's own name, `new_id` makes a UUID.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        store: RegionStore,
        cases: CaseStore,
        adjust: Adjust,
        clock: Clock,
        *,
        above: Callable[[QuotaKey], Sequence[QuotaKey]],
        kind_of: Callable[[QuotaKey], Kind | None],
        new_id: Callable[[], str],
        holder: str,
        settle_s: float,
        after_close_s: float,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self.sources: Mapping[str, Source] = {source.name: source for source in sources}
        self.work = CaseWork(cases, store, adjust, clock, settle_s=settle_s, new_id=new_id)
        self._closing = PeriodClose(cases, self.work, after_close_s=after_close_s)
        self._store = store
        self._cases = cases
        self._adjust = adjust
        self._clock = clock
        self._above = above
        self._kind_of = kind_of
        self._holder = holder
        self._runs = count(1)
        self._settle_s = settle_s
        self._on_report = on_report
        self._young: dict[str, Totals] = {}

    async def run(self, name: str, *, dry_run: bool = False) -> Report:
        """Compare one source once. If `dry_run` is set, or the source is not applied, no balance and no case changes.

        Raises `InvalidRequest` for a source that is not configured, and `Unavailable`; what was done until then stays,
        and a repeat does not do it again.
        """
        source = self.sources.get(name)
        if source is None:
            known = ", ".join(self.sources) or "none: name them in [reconcile] of the configuration"
            raise InvalidRequest("source", f"unknown source {name}: known are {known}")
        if dry_run or not source.apply:
            return await self._noted(await self._compare(source, None))
        holder = f"{self._holder}/{next(self._runs)}"
        if not await self._hold(source, holder):
            return Report(name, State.ELSEWHERE, dry_run=False)
        try:
            await self.work.finish()
            return await self._noted(await self._compare(source, holder))
        finally:
            await self._cases.end_lease(name, holder)

    async def _noted(self, report: Report) -> Report:
        self._on_report(report)
        if report.state is State.DONE:
            await self._cases.note_success(report.source, self._clock.now())
        return report

    async def _hold(self, source: Source, holder: str) -> bool:
        now = self._clock.now()
        return await self._cases.lease(source.name, holder, now, now + LEASE_S)

    async def _compare(self, source: Source, holder: str | None) -> Report:
        """`holder` None: a dry run."""
        dry = holder is None
        if source.kind is Kind.CONSUMABLE:
            holdings = await self._store.holdings()
            found = await self._closing.compare(source, holdings, self._clock.now(), dry=dry)
            return self._report(source, State.DONE, dry=dry, compared=len(found), findings=found)
        totals = await self._count(source)
        compare_at = totals.snapshot_at + 2 * self._settle_s
        if self._clock.now() < compare_at:
            # What was settled close to the snapshot is written by then, whatever became of its first attempt.
            self._young[source.name] = totals
            return Report(source.name, State.WAITING, dry, totals.snapshot_at, compare_at)
        seen = await self._cases.sightings(await self._resources(source), totals.snapshot_at, self._settle_s)
        keys = self._in_order(source, seen, totals)
        questioned = {case.key for case in await self._cases.cases(CaseState.OPEN, MAX_OPEN_CASES)}
        found = []
        for key in keys:
            truth = totals.units.get(key, 0)
            judgement = judge(truth, seen.get(key, Sighting()), source.floor)
            finding = Finding(key, TIMELESS, truth, judgement)
            if holder is not None and _asks_for_more(judgement, asked=key in questioned):
                if not await self._hold(source, holder):
                    return self._report(source, State.ELSEWHERE, dry=dry, compared=len(found), findings=found)
                finding = await self._act(source, finding, totals.snapshot_at, asked=key in questioned)
            found.append(finding)
        return self._report(source, State.DONE, dry=dry, compared=len(found), findings=found, totals=totals)

    async def _count(self, source: Source) -> Totals:
        """What was counted before and has waited long enough, or a new count."""
        totals = self._young.pop(source.name, None)
        if totals is None or self._clock.now() - totals.snapshot_at > MAX_AGE_S:
            totals = await source.truth.totals(await self._resources(source))
        now = self._clock.now()
        if totals.snapshot_at > now + self._settle_s:
            ahead = totals.snapshot_at - now
            raise SourceUnavailable(f"source {source.name} says snapshot_at {ahead:.0f} s in the future: set its clock")
        if now - totals.snapshot_at > MAX_AGE_S:
            hours = MAX_AGE_S / 3600
            raise SourceUnavailable(f"source {source.name} gives a snapshot of more than {hours:g} h ago: count anew")
        return totals

    async def _resources(self, source: Source) -> Sequence[str]:
        return source.named([held.key for held in await self._store.holdings() if held.kind is source.kind])

    def _in_order(self, source: Source, seen: Mapping[QuotaKey, Sighting], totals: Totals) -> Sequence[QuotaKey]:
        """Those first that are charged to others: an adjustment of them is one of the others, too."""
        unused = {key for key in totals.units if key not in seen and self._kind_of(key) is source.kind}
        covered = [key for key in {*seen, *unused} if source.covers(key)]
        return sorted(covered, key=lambda key: (-len(self._above(key)), key))

    async def _act(self, source: Source, finding: Finding, snapshot_at: float, *, asked: bool) -> Finding:
        """Looks again first: an adjustment of another quota, or somebody's decision, may have come in between."""
        key, truth = finding.key, finding.truth
        seen = await self._cases.sightings([key.resource], snapshot_at, self._settle_s, key)
        judgement = judge(truth, seen.get(key, Sighting()), source.floor)
        done = Done.NOTHING
        if judgement.verdict is Verdict.ADJUST:
            judgement, done = await self._put_right(source, key, judgement, snapshot_at)
        elif judgement.verdict is Verdict.AGREES and asked:
            ended = await self._cases.supersede(key, TIMELESS, snapshot_at, self._clock.now())
            done = Done.CASE_SUPERSEDED if ended else Done.CASE_STANDS
        if judgement.verdict is Verdict.CASE:
            done = await self.work.open(source.name, key, TIMELESS, truth, judgement, snapshot_at=snapshot_at)
        return Finding(key, TIMELESS, truth, judgement, done)

    async def _put_right(
        self, source: Source, key: QuotaKey, judgement: Judgement, snapshot_at: float
    ) -> tuple[Judgement, Done]:
        """The open case ends first: whoever approves it in this moment is too late, or the adjustment is."""
        if not await self._cases.supersede(key, TIMELESS, snapshot_at, self._clock.now()):
            return judgement, Done.CASE_STANDS
        outcome = await self._adjust(
            key,
            delta=judgement.difference,
            request_id=request_id_of(source.name, snapshot_at, key),
            reason=f"source {source.name} counted {judgement.difference:+d}",
            reconciles=True,
        )
        match outcome:
            case Adjusted() | RequestConflict():  # a conflict: this count was acted upon before
                return judgement, Done.ADJUSTED
            case Invalid(message=message):
                why = message
            case _:
                why = f"the adjustment was refused: {outcome}"
        return Judgement(Verdict.CASE, judgement.counted, judgement.difference, why), Done.NOTHING

    @staticmethod
    def _report(
        source: Source,
        state: State,
        *,
        dry: bool,
        compared: int,
        findings: Sequence[Finding],
        totals: Totals | None = None,
    ) -> Report:
        mattering = [finding for finding in findings if finding.matters]
        at = None if totals is None else totals.snapshot_at
        return Report(source.name, state, dry, at, None, compared, mattering)


def _asks_for_more(judgement: Judgement, *, asked: bool) -> bool:
    """`asked`: there is an open case, which ends where nothing is left to decide."""
    return judgement.verdict in {Verdict.ADJUST, Verdict.CASE} or (asked and judgement.verdict is Verdict.AGREES)
