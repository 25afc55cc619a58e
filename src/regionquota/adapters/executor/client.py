"""`Executor` over HTTP: one POST per question, never repeated by itself, never redirected."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Annotated, Any, Final, Self

import aiohttp
import msgspec
import structlog
from msgspec import Meta

from regionquota.core.quota import MAX_AMOUNT
from regionquota.core.reservation import Reservation
from regionquota.errors import ExecutorUnavailable
from regionquota.executor_ports import Finding, Verdict

MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""1,000 outcomes take less than 200 KiB."""

_log = structlog.get_logger(__name__)


class _Outcome(msgspec.Struct):
    reservation_id: str
    outcome: Verdict
    actual_amount: Annotated[int, Meta(ge=1, le=MAX_AMOUNT)] | None = None


class _Answer(msgspec.Struct):
    """Each outcome is read for itself: one that is malformed settles nothing, and keeps no other from it."""

    outcomes: list[msgspec.Raw]


_answers: Final = msgspec.json.Decoder(_Answer)
_outcomes: Final = msgspec.json.Decoder(_Outcome)


class HttpExecutor:
    """Belongs to the event loop in which it is entered. `timeout_s` is the deadline of a whole question."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self._timeout_s))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def ask(self, reservations: Sequence[Reservation]) -> Sequence[Finding]:
        raw = await self._post(msgspec.json.encode({"reservations": [_described(held) for held in reservations]}))
        try:
            outcomes = _answers.decode(raw).outcomes
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ExecutorUnavailable(f'{self._url} answers what is no {{"outcomes": […]}}: {error}') from error
        return list(_unambiguous(_findings(outcomes), {held.id for held in reservations}))

    async def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise ExecutorUnavailable(f"{self._url} answers {answer.status}, not 200")
                return await _body(answer, self._url)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ExecutorUnavailable(f"{self._url} does not answer: {error or type(error).__name__}") from error


async def _body(answer: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ExecutorUnavailable(f"{url} answers more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _described(held: Reservation) -> dict[str, Any]:
    return {
        "reservation_id": held.id,
        "operation_id": held.operation_id,
        "request_id": held.request_id,
        "tenant_id": held.key.tenant,
        "resource": held.key.resource,
        "scope": held.key.scope,
        "amount": held.amount,
        "created_at": _time(held.created_at),
        "deadline": _time(held.expires_at),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _findings(outcomes: Iterable[msgspec.Raw]) -> Iterator[Finding]:
    for raw in outcomes:
        try:
            one = _outcomes.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("malformed outcome ignored", why=str(error))
            continue
        if one.actual_amount is not None and one.outcome is not Verdict.COMMITTED:
            _log.warning(
                "malformed outcome ignored", reservation=one.reservation_id, why=f"{one.outcome} with an actual_amount"
            )
            continue
        yield Finding(one.reservation_id, one.outcome, one.actual_amount)


def _unambiguous(found: Iterable[Finding], asked: set[str]) -> Iterator[Finding]:
    """What was asked about, and is answered once. Of two answers neither is believed."""
    findings = list(found)
    named = Counter(finding.reservation_id for finding in findings)
    for finding in findings:
        if finding.reservation_id not in asked:
            _log.warning("outcome ignored", reservation=finding.reservation_id, why="nobody asked about it")
        elif named[finding.reservation_id] > 1:
            _log.warning("outcome ignored", reservation=finding.reservation_id, why="it is answered more than once")
        else:
            yield finding
