"""TruthSource over HTTP: GET {url}?resource=…, once per resource in one request.

The answer is `{"snapshot_at": RFC 3339, "totals": [{"tenant_id", "resource", "scope", "total"}]}`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import aiohttp
import msgspec
from msgspec import Meta, Struct
from yarl import URL

from regionquota.adapters.truth.checking import check_totals
from regionquota.core.quota import GLOBAL_SCOPE, MAX_AMOUNT
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import Totals

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
SHOWN_BYTES: Final = 200
"""Of an answer that is refused, in the error."""


class _Total(Struct):
    tenant_id: str
    resource: str
    total: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
    scope: str = GLOBAL_SCOPE


class _Answer(Struct):
    snapshot_at: Annotated[datetime, Meta(tz=True)]
    totals: list[_Total]


class HttpTruthSource:
    """`deadline_s` is for the whole answer. A connection is made for each: counts are far between."""

    def __init__(self, url: str, *, deadline_s: float) -> None:
        self._url = URL(url)
        self._deadline_s = deadline_s

    async def totals(self, resources: Sequence[str], period: tuple[float, float] | None = None) -> Totals:
        asked = [("resource", resource) for resource in resources]
        if period is not None:
            asked += [("period_start", _moment(period[0])), ("period_end", _moment(period[1]))]
        raw = await self._get(self._url.extend_query(asked))
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
        except msgspec.DecodeError as error:
            raise SourceUnavailable(f"{self._name} gave an answer of another form: {error}") from error
        rows = [(one.tenant_id, one.resource, one.scope, one.total) for one in answer.totals]
        return Totals(answer.snapshot_at.timestamp(), check_totals(self._name, rows, resources))

    async def _get(self, url: URL) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._deadline_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers={"Accept": "application/json"}, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    said = (await response.content.read(SHOWN_BYTES)).decode(errors="replace")
                    raise SourceUnavailable(f"{self._name} answered {response.status}: {said}")
                return await self._read(response)
        except TimeoutError as error:
            raise SourceUnavailable(f"{self._name} gave no answer within {self._deadline_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise SourceUnavailable(f"{self._name} does not answer: {error or type(error).__name__}") from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise SourceUnavailable(f"{self._name} gave an answer of more than {MAX_ANSWER_BYTES} bytes")
        return bytes(body)

    @property
    def _name(self) -> str:
        return str(self._url.with_user(None).with_query(None))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
