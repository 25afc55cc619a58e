"""What is compared with what, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final, Protocol

from regionquota.core.commands import Outcome
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.reconciling import Judgement, Verdict
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import TruthSource

MAX_RESOURCES: Final = 100
"""Of one source: they are all named in its query."""
WILD: Final = frozenset("*?[")


class Adjust(Protocol):
    """`RegionService.adjust`."""

    async def __call__(
        self, key: QuotaKey, *, delta: int, request_id: str, reason: str, reconciles: bool = False
    ) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Source:
    """`resources` are patterns such as `disk*`. Without `apply` it is only said what would be done.

    `kind`: which quotas it counts, allocated or consumable. `floor` in units: up to here a difference is nothing.
    """

    name: str
    truth: TruthSource
    resources: Sequence[str]
    kind: Kind = Kind.ALLOCATED
    apply: bool = False
    floor: int = 0

    def covers(self, key: QuotaKey) -> bool:
        return any(fnmatchcase(key.resource, pattern) for pattern in self.resources)

    def named(self, keys: Sequence[QuotaKey]) -> Sequence[str]:
        """The resources to ask for: those of `keys` that it covers, and those that it names without a wildcard.

        Raises `SourceUnavailable` for more than can be asked for at once.
        """
        plain = {pattern for pattern in self.resources if not WILD.intersection(pattern)}
        found = sorted({key.resource for key in keys if self.covers(key)} | plain)
        if len(found) > MAX_RESOURCES:
            raise SourceUnavailable(
                f"source {self.name} covers {len(found)} resources, more than {MAX_RESOURCES}: make several of it"
            )
        return found


class State(StrEnum):
    DONE = "done"
    WAITING = "waiting"
    """The snapshot is so young that something may still be on its way into the ledger."""
    ELSEWHERE = "elsewhere"
    """Another server is comparing this source."""


class Done(StrEnum):
    NOTHING = "nothing"
    ADJUSTED = "adjusted"
    CASE_OPENED = "case opened"
    """Or its numbers were replaced by newer ones."""
    CASE_STANDS = "case stands"
    """It waits for an approved case, for a newer count, or it was rejected before."""
    CASE_SUPERSEDED = "case superseded"


@dataclass(frozen=True, slots=True)
class Finding:
    """`done` is NOTHING in a dry run; the verdict then says what would have been done."""

    key: QuotaKey
    epoch: int
    truth: int
    judgement: Judgement
    done: Done = Done.NOTHING

    @property
    def matters(self) -> bool:
        return self.judgement.verdict is not Verdict.AGREES or self.done is not Done.NOTHING


@dataclass(frozen=True, slots=True)
class Report:
    """Of one run. `findings` are those that matter. `compare_at`: from when on what is WAITING can be compared."""

    source: str
    state: State
    dry_run: bool
    snapshot_at: float | None = None
    compare_at: float | None = None
    compared: int = 0
    findings: Sequence[Finding] = ()
