"""The region server's HTTP API, as far as a replay needs it."""

from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

from regionquota.core.quota import QuotaKey

TTL_S: Final = 60


class CallError(Exception):
    """No usable answer. `again`: a repeat with the same ids may help; `reached`: the call may have had its effect."""

    def __init__(self, kind: str, *, again: bool, reached: bool, retry_after_s: float = 0.0, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.again = again
        self.reached = reached
        self.retry_after_s = retry_after_s


class _Reserve(msgspec.Struct):
    request_id: str
    tenant_id: str
    resource: str
    scope: str
    amount: int = 1
    ttl_s: int = TTL_S


class _Adjust(msgspec.Struct):
    request_id: str
    tenant_id: str
    resource: str
    scope: str
    delta: int
    reason: str = "given back"


class _SetLimit(msgspec.Struct):
    scope: str
    limit: int
    source: str = "PLAN"
    version: int = 1
    kind: str = "allocated"


class _Reserved(msgspec.Struct):
    reservation_id: str


class _Problem(msgspec.Struct):
    detail: str = ""
    title: str = ""


_encode = msgspec.json.Encoder().encode
_reserved = msgspec.json.Decoder(_Reserved).decode
_problem = msgspec.json.Decoder(_Problem).decode


class RegionCalls:
    """One region's server, and one quota. Every call raises `CallError`, and may be repeated with the same ids."""

    def __init__(self, session: aiohttp.ClientSession, url: str, quota: QuotaKey) -> None:
        self._session = session
        self._url = url.rstrip("/") + "/v1"
        self._reservations = self._url + "/reservations"
        self._quota = quota

    async def set_limit(self, limit: int) -> None:
        quota = self._quota
        url = f"{self._url}/tenants/{quote(quota.tenant, safe='')}/quotas/{quote(quota.resource, safe='')}"
        await self._call("PUT", url, _encode(_SetLimit(quota.scope, limit)))

    async def reserve(self, request_id: str) -> str | None:
        """The reservation's id, or None: denied."""
        quota = self._quota
        body = _encode(_Reserve(request_id, quota.tenant, quota.resource, quota.scope))
        status, answer = await self._call("POST", self._reservations, body, also=429)
        if status == 429:
            return None
        try:
            return _reserved(answer).reservation_id
        except msgspec.DecodeError as error:
            raise CallError("unreadable answer", again=True, reached=True, detail=str(error)) from error

    async def commit(self, reservation_id: str) -> None:
        await self._call("POST", f"{self._reservations}/{quote(reservation_id, safe='')}/commit", b"{}")

    async def release(self, reservation_id: str) -> None:
        """A conflict is as good: the hold has expired in the meantime."""
        await self._call("POST", f"{self._reservations}/{quote(reservation_id, safe='')}/release", b"{}", also=409)

    async def adjust(self, request_id: str, delta: int) -> None:
        quota = self._quota
        body = _encode(_Adjust(request_id, quota.tenant, quota.resource, quota.scope, delta))
        await self._call("POST", self._url + "/adjustments", body)

    async def _call(self, method: str, url: str, body: bytes, *, also: int = 200) -> tuple[int, bytes]:
        try:
            async with self._session.request(method, url, data=body) as response:
                status, answer = response.status, await response.read()
                retry_after = response.headers.get("Retry-After", "")
        except aiohttp.ClientConnectorError as error:
            raise CallError("connection refused", again=True, reached=False, detail=str(error)) from error
        except TimeoutError as error:
            raise CallError("timeout", again=True, reached=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise CallError("connection lost", again=True, reached=True, detail=str(error)) from error
        if status in {200, 201, also}:
            return status, answer
        wait = float(retry_after) if retry_after.isdecimal() else 0.0
        server_failed = status >= 500
        raise CallError(
            f"http {status}", again=server_failed, reached=server_failed, retry_after_s=wait, detail=_detail(answer)
        )


def _detail(answer: bytes) -> str:
    try:
        problem = _problem(answer)
    except msgspec.DecodeError:
        return ""
    return problem.detail or problem.title


def open_session(connections: int, timeout_s: float, headers: dict[str, str]) -> aiohttp.ClientSession:
    """`connections` per server."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=connections),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Content-Type": "application/json", **headers},
    )
