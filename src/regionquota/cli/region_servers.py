"""The regions' servers of a deployment, asked over HTTP on behalf of an operator."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import aiohttp
import typer

from regionquota.config import Config, require_deployment
from regionquota.errors import InvalidRequest, RegionQuotaError, Unavailable

RegionOption = Annotated[str | None, typer.Option("--region", help="Only this region. Default: all of them.")]


@dataclass(frozen=True, slots=True)
class RegionServer:
    """One region's server."""

    region: str
    url: str
    http: aiohttp.ClientSession

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Raises `Unavailable` where there is no answer, or none that the server itself has given."""
        try:
            async with self.http.request(method, f"{self.url}{path}", params=query, json=body) as answer:
                said = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"{self.region} ({self.url}) does not answer: {error or type(error).__name__}") from error
        if answer.status >= 500 or not isinstance(said, dict):
            detail = said.get("detail") if isinstance(said, dict) else "no JSON object"
            raise Unavailable(f"{self.region} ({self.url}) answers {answer.status}: {detail}")
        return answer.status, said


@asynccontextmanager
async def region_servers(config: Config, region: str | None, timeout_s: float) -> AsyncIterator[Sequence[RegionServer]]:
    """Those of `region`, or of all. Raises `ConfigError` where none is known, `InvalidRequest` for one that is not."""
    require_deployment(config)
    regions = config.deployment.regions
    if region is not None and region not in regions:
        raise InvalidRequest("--region", f'--region: unknown region "{region}": known are {", ".join(sorted(regions))}')
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as http:
        wanted = sorted(regions) if region is None else [region]
        yield [RegionServer(name, regions[name].url.rstrip("/"), http) for name in wanted]


def expect(status: int, said: dict[str, Any]) -> dict[str, Any]:
    """Raises `InvalidRequest` or `RegionQuotaError` in the server's own words."""
    if status < 400:
        return said
    detail = str(said.get("detail", f"the server answers {status}"))
    raise InvalidRequest(str(said.get("field")), detail) if status == 400 else RegionQuotaError(detail)
