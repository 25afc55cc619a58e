"""Asks the executor what became of started work whose deadline passed, and settles what it knows.

Several servers may ask about the same work: whoever settles first wins, and the others are answered as a repeat.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, assert_never

import structlog

from regionquota.core.commands import Outcome, Settled
from regionquota.core.reservation import Reservation
from regionquota.executor_ports import Executor, Finding, Verdict
from regionquota.ports import RegionStore

Commit: TypeAlias = Callable[[str, int | None], Awaitable[Outcome]]
Release: TypeAlias = Callable[[str], Awaitable[Outcome]]

_log = structlog.get_logger(__name__)


class Resolver:
    """`commit` and `release` settle durably, as for any caller; `batch` is how much one question names."""

    def __init__(self, store: RegionStore, executor: Executor, commit: Commit, release: Release, *, batch: int) -> None:
        self._store = store
        self._executor = executor
        self._commit = commit
        self._release = release
        self._batch = batch
        self._after: Reservation | None = None

    async def resolve(self) -> int:
        """Ask about all there is, oldest first; returns how many were settled.

        Raises `Unavailable`; the next call goes on behind what was asked last, so that no question that always fails
        keeps the others from being asked.
        """
        settled = 0
        while True:
            asked = await self._store.unknown(self._batch, after=self._after)
            self._after = asked[-1] if len(asked) == self._batch else None
            if asked:
                settled += await self._resolve(asked)
            if self._after is None:
                return settled

    async def _resolve(self, asked: Sequence[Reservation]) -> int:
        findings = await self._executor.ask(asked)
        return sum([await self._settle(finding) for finding in findings])

    async def _settle(self, finding: Finding) -> bool:
        match finding.verdict:
            case Verdict.COMMITTED:
                outcome = await self._commit(finding.reservation_id, finding.actual)
            case Verdict.RELEASED:
                outcome = await self._release(finding.reservation_id)
            case Verdict.RUNNING | Verdict.UNKNOWN:
                return False  # it keeps its capacity, and is asked about again
            case _:
                assert_never(finding.verdict)
        if not isinstance(outcome, Settled):
            _log.warning(
                "what the executor says cannot be settled",
                reservation=finding.reservation_id,
                verdict=finding.verdict.value,
                why=getattr(outcome, "message", type(outcome).__name__),
            )
            return False
        return not outcome.replayed
