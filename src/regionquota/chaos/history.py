"""What the callers asked, and what they were told: everything that a checker may take for granted."""

from dataclasses import dataclass, field
from enum import StrEnum

from regionquota.core.quota import QuotaKey, Region


class Ask(StrEnum):
    RESERVE = "reserve"
    START = "start"
    COMMIT = "commit"
    RELEASE = "release"
    ADJUST = "adjust"


class Answer(StrEnum):
    """`UNKNOWN`: it was asked, perhaps several times, and nobody has said what became of it."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Op:
    """One thing that a caller wanted, with all its repeats under the same id. Times are seconds since 1970.

    `name` is the request id of a reserve or an adjustment, else the reservation id. `amount` is
    what was asked for: what to hold, the actual amount of a commit, what to give back. `doubts` counts the times it
    was sent without an answer. `reservation_id` and `expires_at` are what a reserve was told; `gives_back` is
    the reservation whose units an adjustment returns, `operation_id` who starts.
    """

    region: Region
    key: QuotaKey
    ask: Ask
    name: str
    amount: int
    asked_at: float
    answer: Answer = Answer.UNKNOWN
    answered_at: float | None = None
    doubts: int = 0
    reservation_id: str | None = None
    expires_at: float = 0.0
    gives_back: str = ""
    operation_id: str | None = None

    def __str__(self) -> str:
        return f"{self.ask} {self.name} of {self.amount} in {self.region}"

    @property
    def may_have_happened(self) -> bool:
        """A refusal is final only if no earlier sending of the same is still under way."""
        return self.answer is not Answer.REFUSED or self.doubts > 0


@dataclass(slots=True)
class History:
    ops: list[Op] = field(default_factory=list)

    def count(self, answer: Answer) -> int:
        return sum(op.answer is answer for op in self.ops)
