"""What a count from outside says of a balance, and what follows from it. Pure.

A source of truth says "at this instant N units were in use here". The ledger goes on in the meantime, so N is compared
with what was used at that instant: what is used now, without what the ledger shows since. Whatever happened so close
to the snapshot that N may or may not hold it is never guessed at.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from regionquota.core.periods import TIMELESS, Epoch
from regionquota.core.quota import QuotaKey

AGREED_PER_MILLE: Final = 1
"""A difference of up to this part of what was used is nothing."""
CASE_PERCENT: Final = 5
"""A difference of more than this part of what was used is for a person to decide."""
REJECTED_STANDS_S: Final = 7 * 86_400.0
"""A difference that a person rejected is not asked about again for so long, while it stays the same."""
REQUEST_DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Sighting:
    """What the ledger shows of one quota around a snapshot, all read at one instant.

    `used` is that of now, `since` what was added to it after the snapshot. Earlier reconciliations do not count as
    added: they changed what is written, not what is. `near`: something was settled so shortly before or after the
    snapshot that either side is possible. `held`: units of holds that were open then and still are; the work may be
    done or not. `settled`: units of such holds that were committed since.
    """

    used: int = 0
    since: int = 0
    near: bool = False
    held: int = 0
    settled: int = 0

    @property
    def then(self) -> int:
        """What was used at the snapshot, by the ledger."""
        return self.used - self.since


class Verdict(StrEnum):
    AGREES = "agrees"
    UNSETTLED = "unsettled"
    """Too much happened around the snapshot: a later one will tell."""
    ADJUST = "adjust"
    CASE = "case"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`difference` is what has to be added to `used`; positive: more is in use than the ledger says."""

    verdict: Verdict
    counted: int
    difference: int
    why: str = ""


def beyond_doubt(truth: int, sight: Sighting) -> int:
    """By how much `truth` is out of the range that the ledger allows; 0 within it.

    Open holds widen the range upwards: their work may have been done before they are committed.
    """
    low = sight.then
    high = low + sight.held + sight.settled
    return truth - min(max(truth, low), high)


def judge(truth: int, sight: Sighting, floor: int) -> Judgement:
    """Of an allocated quota. A difference of up to `floor` units is nothing, however little is used."""
    counted = sight.then
    if sight.near or sight.settled:
        return Judgement(Verdict.UNSETTLED, counted, truth - counted, "settled around the snapshot")
    difference = beyond_doubt(truth, sight)
    if _agree(difference, counted, floor):
        return Judgement(Verdict.AGREES, counted, difference)
    if abs(difference) * 100 > CASE_PERCENT * max(0, counted):
        return Judgement(Verdict.CASE, counted, difference, f"more than {CASE_PERCENT} % of what was used")
    if sight.used + difference < 0:
        return Judgement(Verdict.CASE, counted, difference, f"used is {sight.used} now and would fall below 0")
    return Judgement(Verdict.ADJUST, counted, difference)


def judge_closed(truth: int, counted: int, floor: int) -> Judgement:
    """Of a period that has ended. It is never adjusted: bills may have been sent."""
    difference = truth - counted
    if _agree(difference, counted, floor):
        return Judgement(Verdict.AGREES, counted, difference)
    return Judgement(Verdict.CASE, counted, difference, "the period is closed")


def _agree(difference: int, counted: int, floor: int) -> bool:
    return abs(difference) <= floor or abs(difference) * 1000 <= AGREED_PER_MILLE * max(0, counted)


def request_id_of(source: str, snapshot_at: float, key: QuotaKey) -> str:
    """The same for the same count, so that it is acted upon once."""
    content = "\0".join((source, f"{snapshot_at:.6f}", key.tenant, key.resource, key.scope))
    return f"reconcile:{hashlib.blake2b(content.encode(), digest_size=REQUEST_DIGEST_BYTES).hexdigest()}"


class CaseState(StrEnum):
    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    """A newer count found nothing left to decide."""


@dataclass(frozen=True, slots=True)
class Case:
    """A difference that a person decides on. Times are seconds since 1970.

    `counted` is what the ledger said where the source said `truth`. `period_start` is None for allocated quotas; else
    it is the period `epoch` that the difference was found in, while `delta`, what an approval adds, is charged to the
    current one. An approved case whose `applied_at` is None is still to be carried out.
    """

    id: str
    key: QuotaKey
    source: str
    snapshot_at: float
    truth: int
    counted: int
    difference: int
    why: str
    opened_at: float
    epoch: Epoch = TIMELESS
    period_start: float | None = None
    state: CaseState = CaseState.OPEN
    decided_at: float | None = None
    by: str | None = None
    reason: str | None = None
    delta: int | None = None
    applied_at: float | None = None

    @property
    def request_id(self) -> str:
        """Of the adjustment that an approval makes: there is one, however often it is approved."""
        return f"reconcile-case:{self.id}"

    @property
    def unapplied(self) -> bool:
        return self.state is CaseState.APPROVED and self.applied_at is None
