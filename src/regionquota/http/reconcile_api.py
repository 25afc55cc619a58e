"""Reconciliation over HTTP: cases, what people decide on them, and runs out of turn."""

import re
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from regionquota.core.reconciling import Case, CaseState
from regionquota.errors import InvalidRequest
from regionquota.http import problems
from regionquota.http.bodies import Flag, Identifier, Reason
from regionquota.http.decoding import decode, write_time
from regionquota.http.problems import Answer
from regionquota.reconciling_ports import CaseStore
from regionquota.region.case_work import CaseRefused
from regionquota.region.counts import Finding, Report
from regionquota.region.reconciler import Reconciler

DEFAULT_CASES: Final = 100
MAX_CASES: Final = 1000
"""In one answer."""
MAX_FINDINGS: Final = 1000
"""Of one run, in its answer; `differences` counts them all."""
ANY_STATE: Final = "all"
_NUMBER: Final = re.compile(r"[0-9]{1,6}")


class DecisionBody(Struct, forbid_unknown_fields=True, frozen=True):
    """Who decides, and why: both go to the ledger."""

    by: Identifier
    reason: Reason


class RunBody(Struct, forbid_unknown_fields=True, frozen=True):
    source: Identifier
    dry_run: Flag = False


class ReconcileApi:
    def __init__(self, reconciler: Reconciler, cases: CaseStore) -> None:
        self._reconciler = reconciler
        self._cases = cases

    async def list_cases(self, request: web.Request) -> Answer:
        state = _state(request.query.get("state", CaseState.OPEN.value))
        found = await self._cases.cases(state, _limit(request.query.get("limit")))
        body = {"cases": [case_fields(case) for case in found], "open": await self._cases.open_count()}
        return Answer(200, body, {"Cache-Control": "no-store"})

    async def approve(self, request: web.Request) -> Answer:
        body = decode(await request.read(), DecisionBody)
        name = request.match_info["id"]
        return _decided(name, await self._reconciler.work.approve(name, body.by, body.reason))

    async def reject(self, request: web.Request) -> Answer:
        body = decode(await request.read(), DecisionBody)
        name = request.match_info["id"]
        return _decided(name, await self._reconciler.work.reject(name, body.by, body.reason))

    async def run(self, request: web.Request) -> Answer:
        body = decode(await request.read(), RunBody)
        return Answer(200, report_fields(await self._reconciler.run(body.source, dry_run=body.dry_run)))


def case_fields(case: Case) -> dict[str, Any]:
    """`delta` is what an approval added to what is used; until `applied_at` it is still to be added."""
    return {
        "case_id": case.id,
        "state": case.state.value,
        "tenant_id": case.key.tenant,
        "resource": case.key.resource,
        "scope": case.key.scope,
        "period_start": _time(case.period_start),
        "source": case.source,
        "snapshot_at": write_time(case.snapshot_at),
        "truth": case.truth,
        "counted": case.counted,
        "difference": case.difference,
        "why": case.why,
        "opened_at": write_time(case.opened_at),
        "decided_at": _time(case.decided_at),
        "by": case.by,
        "reason": case.reason,
        "delta": case.delta,
        "applied_at": _time(case.applied_at),
    }


def report_fields(report: Report) -> dict[str, Any]:
    return {
        "source": report.source,
        "state": report.state.value,
        "dry_run": report.dry_run,
        "snapshot_at": _time(report.snapshot_at),
        "compare_at": _time(report.compare_at),
        "compared": report.compared,
        "differences": len(report.findings),
        "findings": [_finding(finding) for finding in report.findings[:MAX_FINDINGS]],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    judgement = finding.judgement
    return {
        "tenant_id": finding.key.tenant,
        "resource": finding.key.resource,
        "scope": finding.key.scope,
        "epoch": finding.epoch,
        "truth": finding.truth,
        "counted": judgement.counted,
        "difference": judgement.difference,
        "verdict": judgement.verdict.value,
        "why": judgement.why,
        "done": finding.done.value,
    }


def _decided(name: str, outcome: Case | CaseRefused | None) -> Answer:
    match outcome:
        case None:
            return problems.problem(404, "unknown-case", "No such case", f"no case {name} in this region")
        case CaseRefused(case=case, message=message):
            detail = f"case {name}: {message}"
            members = {"reason": "CASE_REFUSED", "case_state": case.state.value}
            return problems.problem(409, "case-refused", "The case cannot be decided so", detail, **members)
        case _:
            return Answer(200, case_fields(outcome))


def _state(text: str) -> CaseState | None:
    if text == ANY_STATE:
        return None
    try:
        return CaseState(text)
    except ValueError:
        known = ", ".join([*CaseState, ANY_STATE])
        shown = msgspec.json.encode(text[:80]).decode()
        raise InvalidRequest("state", f"state must be one of {known}, got {shown}") from None


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_CASES
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= MAX_CASES:
        raise InvalidRequest("limit", f"limit must be an integer from 1 to {MAX_CASES}, got {text[:80]!a}")
    return int(text)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else write_time(seconds)
