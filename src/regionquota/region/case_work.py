"""Cases: differences that a person decides on. An approval has its effect once, however often it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from regionquota.core.commands import Adjusted, Invalid, RequestConflict, UnknownQuota
from regionquota.core.quota import QuotaKey
from regionquota.core.reconciling import Case, CaseState, Judgement, Sighting, beyond_doubt
from regionquota.core.slice import at
from regionquota.ports import Clock, RegionStore
from regionquota.reconciling_ports import CaseStore
from regionquota.region.counts import Adjust, Done

MAX_CASE_AGE_S: Final = 7 * 86_400.0
"""The ledger since an older count may not be complete any more, so it is not approved."""
MAX_UNAPPLIED: Final = 1000
"""Approved cases that one run tries to carry out."""
MAX_ATTEMPTS: Final = 5
"""At a decision while newer counts replace the numbers."""
BUSY: Final = "its numbers are being replaced by newer ones: look again"


@dataclass(frozen=True, slots=True)
class CaseRefused:
    """Not decided, or not carried out yet: `message` says why, and what helps."""

    case: Case
    message: str


class CaseWork:
    """`settle_s` as in `Reconciler`; `new_id` makes a UUID."""

    def __init__(
        self,
        cases: CaseStore,
        store: RegionStore,
        adjust: Adjust,
        clock: Clock,
        *,
        settle_s: float,
        new_id: Callable[[], str],
    ) -> None:
        self._cases = cases
        self._store = store
        self._adjust = adjust
        self._clock = clock
        self._settle_s = settle_s
        self._new_id = new_id

    async def open(
        self,
        source: str,
        key: QuotaKey,
        epoch: int,
        truth: int,
        judgement: Judgement,
        *,
        snapshot_at: float,
        period_start: float | None = None,
    ) -> Done:
        case = Case(
            id=self._new_id(),
            key=key,
            source=source,
            snapshot_at=snapshot_at,
            truth=truth,
            counted=judgement.counted,
            difference=judgement.difference,
            why=judgement.why,
            opened_at=self._clock.now(),
            epoch=epoch,
            period_start=period_start,
        )
        return Done.CASE_STANDS if await self._cases.open_case(case) is None else Done.CASE_OPENED

    async def reject(self, case_id: str, by: str, reason: str) -> Case | CaseRefused | None:
        """None: there is no such case. A repeat is answered like the first time."""
        for _ in range(MAX_ATTEMPTS):
            case = await self._cases.case(case_id)
            if case is None or case.state is CaseState.REJECTED:
                return case
            refused = CaseRefused(case, BUSY)
            if case.state is not CaseState.OPEN:
                return CaseRefused(case, f"it is {case.state}")
            decided = await self._cases.decide_case(case, CaseState.REJECTED, by, reason, None, self._clock.now())
            if decided is not None:
                return decided
        return refused

    async def approve(self, case_id: str, by: str, reason: str) -> Case | CaseRefused | None:
        """Add the difference to what is used, less what the ledger shows since. As `reject`."""
        for _ in range(MAX_ATTEMPTS):
            case = await self._cases.case(case_id)
            if case is None or (case.state is CaseState.APPROVED and not case.unapplied):
                return case
            refused = CaseRefused(case, BUSY)
            if case.unapplied:
                return await self._carry_out(case)
            if case.state is not CaseState.OPEN:
                return CaseRefused(case, f"it is {case.state}")
            delta = await self._due(case)
            if isinstance(delta, CaseRefused):
                return delta
            decided = await self._cases.decide_case(case, CaseState.APPROVED, by, reason, delta, self._clock.now())
            if decided is not None:
                return await self._carry_out(decided)
        return refused

    async def finish(self) -> None:
        """Carry out what was approved by a server that did not come to it."""
        for case in await self._cases.unapplied(MAX_UNAPPLIED):
            await self._carry_out(case)

    async def _due(self, case: Case) -> int | CaseRefused:
        """What has to be added now."""
        now = self._clock.now()
        if now - case.snapshot_at > MAX_CASE_AGE_S:
            days = MAX_CASE_AGE_S / 86_400
            return CaseRefused(case, f"the count is older than {days:g} days: wait for a newer one, or reject it")
        if case.period_start is not None:
            period = (case.key, case.epoch)
            delta = case.truth - (await self._cases.period_usage([period])).get(period, case.counted)
        else:
            seen = await self._cases.sightings([case.key.resource], case.snapshot_at, self._settle_s, case.key)
            delta = beyond_doubt(case.truth, seen.get(case.key, Sighting()))
        holding = await self._store.holding(case.key)
        used = 0 if holding is None else at(holding, now).counter.used
        if used + delta < 0:
            return CaseRefused(
                case, f"used is {used}, and {delta} would take it below 0: approve it later, or reject it"
            )
        return delta

    async def _carry_out(self, case: Case) -> Case | CaseRefused:
        """The store decides by the request id whether it was done before."""
        assert case.delta is not None
        if case.delta:
            outcome = await self._adjust(
                case.key, delta=case.delta, request_id=case.request_id, reason=reason_of(case), reconciles=True
            )
            match outcome:
                case Adjusted() | RequestConflict():
                    pass
                case Invalid(message=message):
                    return CaseRefused(case, f"approved, and still to be carried out: {message}")
                case UnknownQuota():
                    return CaseRefused(case, "approved, and still to be carried out: the quota does not exist here")
                case _:
                    raise AssertionError(outcome)
        return await self._cases.note_applied(case.id, self._clock.now())


def reason_of(case: Case) -> str:
    """For the ledger. A closed period is named by its first instant: the units are charged to the current one."""
    what = f"case {case.id} of source {case.source}, approved by {case.by}: {case.reason}"
    if case.period_start is None:
        return what
    return f"for the closed period from {datetime.fromtimestamp(case.period_start, UTC).isoformat()}: {what}"
