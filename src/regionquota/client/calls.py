"""The region servers' calls, each safe to repeat and repeated until it is answered or its deadline passes."""

import asyncio
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from regionquota.client.answers import Adjusted, Reservation, read, refusal
from regionquota.client.arguments import check_integer, check_reservation, check_text
from regionquota.client.errors import NotFound
from regionquota.client.transport import Transport

T = TypeVar("T")

GLOBAL: Final = "global"
Priority: TypeAlias = Literal["high", "normal", "low"]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A further budget to charge. What is left out is as in the request; with no `amount` it settles like it, too."""

    tenant_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    amount: int | None = None


class Calls:
    """To one region, by the URLs of its servers. Belongs to one event loop; any number of tasks may share it.

    `attempt_s` is the deadline of one attempt, `deadline_s` of a call with all its attempts. A call that is cancelled
    is given up at once: a hold that it may have made ends with its time to live.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        attempt_s: float = 2.0,
        deadline_s: float = 10.0,
        connections: int = 100,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._transport = Transport(_listed(urls), attempt_s=attempt_s, connections=connections, headers=headers)
        self._deadline_s = deadline_s
        self._settling: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for settlements that are under way: no longer than their deadline."""
        await asyncio.gather(*self._settling, return_exceptions=True)
        await self._transport.close()

    async def reserve(
        self,
        tenant_id: str,
        resource: str,
        amount: int,
        *,
        scope: str = GLOBAL,
        lines: Sequence[Line] = (),
        ttl_s: int | None = None,
        wait_ms: int = 0,
        priority: Priority = "normal",
        request_id: str | None = None,
    ) -> Reservation:
        """Hold `amount` for `ttl_s` seconds (the server's default if None). With `request_id` it may be repeated later,
        also at another `priority`.

        Raises `Denied`, after waiting up to `wait_ms` for room, and `QuotaError` of any other kind.
        """
        check_text("tenant_id", tenant_id)
        check_integer("wait_ms", wait_ms, 0)
        body: dict[str, Any] = {
            "request_id": request_id or new_id(),
            "tenant_id": tenant_id,
            "resource": resource,
            "scope": scope,
            "amount": amount,
            "wait_ms": wait_ms,
        }
        if ttl_s is not None:
            body["ttl_s"] = ttl_s
        if priority != "normal":  # which servers of an older release do not know
            body["priority"] = priority
        if lines:
            body["lines"] = lines
        return await self._post("/v1/reservations", body, Reservation, affinity=tenant_id, wait_s=wait_ms / 1000)

    async def start(self, reservation: Reservation, operation_id: str) -> Reservation:
        """The work begins: from now on the hold does not end by itself, only by commit or release."""
        return await self._settle(reservation, "start", {"operation_id": operation_id})

    async def commit(self, reservation: Reservation, actual_amount: int | None = None) -> Reservation:
        """Charge `actual_amount` (all of it if None), and give the rest back. Late is better than never."""
        body = {} if actual_amount is None else {"actual_amount": actual_amount}
        return await self._settle(reservation, "commit", body)

    async def release(self, reservation: Reservation) -> Reservation:
        return await self._settle(reservation, "release", {})

    async def extend(self, reservation: Reservation, ttl_s: int) -> Reservation:
        """Let the hold end `ttl_s` seconds from now."""
        return await self._settle(reservation, "extend", {"ttl_s": ttl_s})

    async def status(self, reservation: Reservation) -> Reservation:
        check_reservation(reservation)
        return await self._get(_path(reservation), reservation.tenant_id)

    async def find(self, tenant_id: str, request_id: str) -> Reservation | None:
        """What became of a reserve whose answer was lost."""
        check_text("tenant_id", tenant_id)
        check_text("request_id", request_id)
        try:
            return await self._get(
                f"/v1/reservations?{urlencode({'tenant_id': tenant_id, 'request_id': request_id})}", tenant_id
            )
        except NotFound:
            return None

    async def adjust(
        self,
        tenant_id: str,
        resource: str,
        delta: int,
        *,
        reason: str,
        scope: str = GLOBAL,
        request_id: str | None = None,
    ) -> Adjusted:
        """Change what is used: below 0 for what was deleted. With `request_id` it may be repeated later."""
        check_text("tenant_id", tenant_id)
        body = {
            "request_id": request_id or new_id(),
            "tenant_id": tenant_id,
            "resource": resource,
            "scope": scope,
            "delta": delta,
            "reason": reason,
        }
        return await self._post("/v1/adjustments", body, Adjusted, affinity=tenant_id)

    def settling(self, settlement: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Goes on when whoever waits for it is cancelled, and `close` waits for it. It logs itself what goes wrong."""
        task = asyncio.get_running_loop().create_task(settlement)
        self._settling.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: "asyncio.Task[Any]") -> None:
        self._settling.discard(task)
        if not task.cancelled():
            task.exception()  # perhaps nobody waits for it any more

    async def _settle(self, reservation: Reservation, event: str, body: Mapping[str, Any]) -> Reservation:
        check_reservation(reservation)
        path = f"{_path(reservation)}/{event}"
        return await self._post(path, body, Reservation, affinity=reservation.tenant_id)

    async def _get(self, path: str, affinity: str) -> Reservation:
        return self._read(await self._ask("GET", path, None, affinity), Reservation)

    async def _post(
        self, path: str, body: Mapping[str, Any], kind: type[T], *, affinity: str, wait_s: float = 0.0
    ) -> T:
        return self._read(await self._ask("POST", path, msgspec.json.encode(body), affinity, wait_s), kind)

    async def _ask(
        self, method: str, path: str, body: bytes | None, affinity: str, wait_s: float = 0.0
    ) -> tuple[int, bytes]:
        return await self._transport.ask(
            method, path, body, affinity=affinity, deadline_s=self._deadline_s, wait_s=wait_s
        )

    @staticmethod
    def _read(answer: tuple[int, bytes], kind: type[T]) -> T:
        status, raw = answer
        if status not in {200, 201}:
            raise refusal(status, raw)
        return read(kind, raw)


def _listed(urls: str | Sequence[str]) -> Sequence[str]:
    """Raises `TypeError` or `ValueError`."""
    if isinstance(urls, str):
        return [urls]
    if not isinstance(urls, Sequence) or not all(isinstance(url, str) for url in urls):
        raise TypeError(f"urls must be a URL or a list of them, got {ascii(urls)[:80]}")
    if not urls:
        raise ValueError("urls must name at least one server")
    return urls


def new_id() -> str:
    return str(uuid.uuid4())


def _path(reservation: Reservation) -> str:
    return f"/v1/reservations/{quote(reservation.reservation_id, safe='')}"
