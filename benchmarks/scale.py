"""What one more quota costs: bytes in etcd, in a coordinator's memory, in a report and in a region's Postgres.

    .venv/bin/python benchmarks/scale.py [QUOTAS]

docs/scale.md does sums with these figures.
"""

import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from regionquota.adapters.etcd.codec import decode_allocation, encode_allocation, encode_report
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.postgres.migrate import migrate
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, open_pool
from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.connections import connect_etcd
from regionquota.config import EtcdConfig
from regionquota.coordinator.history_watch import HistoryWatch
from regionquota.core.allocation import LimitSource, VersionedLimit, grant, new_allocation
from regionquota.core.demand import Demand
from regionquota.core.history import Bond
from regionquota.core.quota import Kind, QuotaKey
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres, scratch_directory
from regionquota.loops import each
from regionquota.ports import Stored

REGIONS = ("us-east-1", "eu-west-1", "ap-south-1", "sa-east-1", "af-south-1")
DOCUMENT = grant(
    new_allocation(Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(50_000_000, 3)), dict.fromkeys(REGIONS, 9_000_000)
)
WRITES_AT_ONCE = 32
PAGE = 1_000
PATIENT = Deadlines(acquire=30, connect=30, statement=30, lock=30, idle_in_transaction=30)


def key_of(number: int) -> QuotaKey:
    return QuotaKey(f"tenant-{number:010}", "api-calls-per-month")


def in_memory(documents: int) -> float:
    """Bytes for each, as a coordinator keeps it."""
    raw = encode_allocation(DOCUMENT)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = {key_of(number): Stored(key_of(number), number, decode_allocation(b"", raw)) for number in range(documents)}
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / len(kept)


def in_a_report() -> float:
    word = Demand(
        key_of(1), 9_000_000, 4_512_345, 1_234, 12_345, 0, 0, seconds=5.001, epoch=24_317, largest=100, at=1.8e9
    )
    (report,) = encode_report(REGIONS[0], [word] * PAGE)
    return len(report) / PAGE


@asynccontextmanager
async def etcd(directory: Path) -> AsyncIterator[EmbeddedEtcd]:
    server = EmbeddedEtcd(directory, unsafe_no_fsync=True)
    await server.start()
    yield server
    await server.kill()


async def in_etcd(documents: int) -> tuple[float, float]:
    """Bytes for each: of the database file, and of the server's memory."""
    with scratch_directory() as directory:
        bond = Bond()
        async with etcd(directory) as server, connect_etcd(EtcdConfig(endpoints=(server.endpoint,)), bond) as client:
            await HistoryWatch("scale", client.histories, bond, SystemClock(), lambda: None).step()
            begun = _file(directory), _memory(server.pid)

            async def write(number: int) -> None:
                await client.allocations.swap(key_of(number), 0, DOCUMENT)

            await each(range(documents), write, WRITES_AT_ONCE)
            await asyncio.sleep(1.0)  # a batch is on the disk after a tenth of a second
            return (_file(directory) - begun[0]) / documents, (_memory(server.pid) - begun[1]) / documents


def _file(directory: Path) -> int:
    return (directory / "member" / "snap" / "db").stat().st_size


def _memory(pid: int) -> int:
    """Resident, of /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


async def in_postgres(quotas: int) -> float:
    """Bytes for each, indexes and the room for updates included."""
    with scratch_directory() as directory:
        server = EmbeddedPostgres(directory)
        await server.start()
        await migrate(server.dsn)
        pool = await open_pool(server.dsn, password=None, size=WRITES_AT_ONCE, deadlines=PATIENT)
        store = PostgresRegionStore(pool, REGIONS[0], PATIENT)

        async def apply(number: int) -> None:
            await store.apply(key_of(number), DOCUMENT, number + 1, time.time())

        await each(range(quotas), apply, WRITES_AT_ONCE)
        async with pool.acquire() as conn:
            size = await conn.fetchval("SELECT pg_total_relation_size('quota_counters')")
        pool.terminate()
        await server.kill()
        return float(size) / quotas


async def main(quotas: int) -> None:
    file, resident = await in_etcd(quotas)
    figures = {
        "document in etcd, as it is written": float(len(encode_allocation(DOCUMENT))),
        "its key": float(len(Keyspace("/regionquota/").allocation(key_of(1)))),
        "etcd's file": file,
        "etcd's memory, the file's pages included": resident,
        "a coordinator's memory": in_memory(quotas),
        "a report": in_a_report(),
        "a region's Postgres": await in_postgres(quotas),
    }
    print(f"{quotas:,} quotas of {len(REGIONS)} regions; bytes for each:")
    for name, size in figures.items():
        print(f"{size:>8,.0f}  {name}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
