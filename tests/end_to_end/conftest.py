"""One real deployment for the session: `regionquota dev` as a user runs it."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.end_to_end.support import Deployment, dev, numbers

from regionquota.bootstrap.operator import operator
from regionquota.config import load
from regionquota.embedded import scratch_directory


@pytest.fixture(scope="session")
async def deployment() -> AsyncIterator[Deployment]:
    with scratch_directory("regionquota-e2e-") as data_dir:
        async with dev(data_dir) as (_, said):
            file = Path(said["config"])
            config = load(file, {})
            timeout = aiohttp.ClientTimeout(total=10)
            async with aiohttp.ClientSession(timeout=timeout) as http, operator(config, databases=True) as connected:
                yield Deployment(file, config, http, connected)


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:60]}-{next(numbers)}"
