from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory


@pytest.fixture
def scratch() -> Iterator[Path]:
    with scratch_directory() as directory:
        yield directory


@pytest.fixture(scope="module")
async def one_postgres() -> AsyncIterator[EmbeddedPostgres]:
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory / "postgres")
        yield server
        await server.stop()


@pytest.fixture
async def postgres(one_postgres: EmbeddedPostgres) -> EmbeddedPostgres:
    """Running, whatever the test before did to it."""
    if not one_postgres.running:
        await one_postgres.start()
    return one_postgres


@pytest.fixture
async def etcd(scratch: Path) -> AsyncIterator[EmbeddedEtcd]:
    server = EmbeddedEtcd(scratch / "etcd")
    await server.start()
    yield server
    await server.stop()
