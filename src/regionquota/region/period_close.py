"""Consumable quotas: each period is compared once, some time after its end."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from regionquota.core.periods import epoch_of, start_of
from regionquota.core.quota import Kind
from regionquota.core.reconciling import Verdict, judge_closed
from regionquota.core.slice import Holding
from regionquota.reconciling_ports import CaseStore, PeriodKey
from regionquota.region.case_work import CaseWork
from regionquota.region.counts import Done, Finding, Source

MAX_PERIODS_BACK: Final = 3
"""Ended periods of a quota that are still compared, if nobody came to it before."""

Span: TypeAlias = tuple[float, float]
"""The first instant of a period, and the first after it."""


def ended(holdings: Sequence[Holding], now: float, after_close_s: float) -> Mapping[PeriodKey, Span]:
    """The periods that ended `after_close_s` ago or earlier, of quotas that are known since before their end."""
    found: dict[PeriodKey, Span] = {}
    for held in holdings:
        calendar = held.policy.calendar
        current = max(held.epoch, epoch_of(held.kind, now, calendar))
        for epoch in range(current - MAX_PERIODS_BACK, current):
            span = (start_of(epoch, calendar).timestamp(), start_of(epoch + 1, calendar).timestamp())
            if now >= span[1] + after_close_s:
                found[held.key, epoch] = span
    return found


class PeriodClose:
    def __init__(self, cases: CaseStore, work: CaseWork, *, after_close_s: float) -> None:
        self._cases = cases
        self._work = work
        self._after_close_s = after_close_s

    async def compare(self, source: Source, holdings: Sequence[Holding], now: float, *, dry: bool) -> Sequence[Finding]:
        """Any difference opens a case: what has been billed is not adjusted."""
        covered = {one.key: one for one in holdings if one.kind is Kind.CONSUMABLE and source.covers(one.key)}
        spans = ended(list(covered.values()), now, self._after_close_s)
        wanted = await self._cases.uncompared(source.name, list(spans))
        usage = await self._cases.period_usage(wanted)
        # Without a counter of its own a period was not used, unless the quota came later than that.
        known = [period for period in wanted if period in usage or covered[period[0]].epoch < period[1]]
        groups: dict[Span, list[PeriodKey]] = defaultdict(list)
        for period in known:
            groups[spans[period]].append(period)
        found: list[Finding] = []
        for span, periods in sorted(groups.items()):
            found += await self._compare_span(source, span, periods, usage, now, dry=dry)
        return found

    async def _compare_span(
        self,
        source: Source,
        span: Span,
        periods: Sequence[PeriodKey],
        usage: Mapping[PeriodKey, int],
        now: float,
        *,
        dry: bool,
    ) -> Sequence[Finding]:
        totals = await source.truth.totals(source.named([key for key, _ in periods]), span)
        if totals.snapshot_at < span[1]:
            return ()  # counted before its end: the source is asked again next time
        found: list[Finding] = []
        for period in periods:
            key, epoch = period
            truth = totals.units.get(key, 0)
            judgement = judge_closed(truth, usage.get(period, 0), source.floor)
            done = Done.NOTHING
            if not dry:
                if judgement.verdict is Verdict.CASE:
                    done = await self._work.open(
                        source.name, key, epoch, truth, judgement, snapshot_at=totals.snapshot_at, period_start=span[0]
                    )
                await self._cases.close_period(source.name, period, now)
            found.append(Finding(key, epoch, truth, judgement, done))
        return found
