"""What an operator's command needs: etcd, and the regions' databases where they are named."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from regionquota.adapters.etcd import EtcdClient, history
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Deadlines, Pool, open_pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.bootstrap.connections import connect_etcd, deadlines_of
from regionquota.config import Config, DeployedRegion, require_deployment
from regionquota.core.history import History
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import ConfigError, EtcdUnavailable, StoreUnavailable
from regionquota.history_ports import HistoryStore
from regionquota.ledger_ports import UsageLedger
from regionquota.ports import AllocationStore, Directory, RegionStore, Stored

POOL_SIZE = 2
STATEMENT_TIMEOUT_S = 60.0
"""An operator's reads may take longer than a caller's reserve."""
HISTORY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Databases:
    stores: Mapping[Region, RegionStore]
    ledgers: Mapping[Region, UsageLedger]


@dataclass(frozen=True, slots=True)
class Operator:
    allocations: AllocationStore
    directory: Directory
    stores: Mapping[Region, RegionStore]
    histories: HistoryStore
    allocations_in: Callable[[History], AllocationStore]
    history: Callable[[QuotaKey, int, int], Awaitable[Sequence[Stored]]]


@asynccontextmanager
async def operator(config: Config, *, databases: bool = False) -> AsyncIterator[Operator]:
    """`databases` also connects to each region's Postgres. Raises `ConfigError`, `Unavailable`."""
    etcd = connect_etcd(config.etcd)
    try:
        await _reach(etcd, config.etcd.endpoints)
        told = partial(history, etcd, deadline_s=HISTORY_TIMEOUT_S)
        connected = Operator(etcd.allocations, etcd.directory, {}, etcd.histories, etcd.allocations_in, told)
        if databases:
            async with region_databases(config) as opened:
                yield replace(connected, stores=opened.stores)
        else:
            yield connected
    finally:
        await etcd.close()


@asynccontextmanager
async def region_databases(config: Config) -> AsyncIterator[Databases]:
    """Of each region, and without etcd. Raises `ConfigError`, `StoreUnavailable`."""
    require_deployment(config)
    deadlines = replace(deadlines_of(config.postgres), statement=STATEMENT_TIMEOUT_S)
    pools: dict[Region, Pool] = {}
    try:
        for name, region in config.deployment.regions.items():
            pools[name] = await _open(name, region, deadlines)
        yield Databases(
            {name: PostgresRegionStore(pool, name, deadlines) for name, pool in pools.items()},
            {name: PostgresUsageLedger(pool, deadlines) for name, pool in pools.items()},
        )
    finally:
        await asyncio.gather(*(pool.close() for pool in pools.values()))


async def _open(name: Region, region: DeployedRegion, deadlines: Deadlines) -> Pool:
    if region.dsn is None:
        raise ConfigError(f"deployment.regions.{name}.dsn is missing: this command reads its database")
    try:
        return await open_pool(region.dsn, password=region.secret(), size=POOL_SIZE, deadlines=deadlines)
    except StoreUnavailable as error:
        where = urlsplit(region.dsn).netloc.rpartition("@")[2]  # no password on a screen
        raise StoreUnavailable(
            f"no Postgres answers for {name} at {where} (deployment.regions.{name}.dsn): "
            f"is `regionquota dev` or that region's Postgres running? {error}"
        ) from error


async def _reach(etcd: EtcdClient, endpoints: Sequence[str]) -> None:
    """So that the next call goes to a member that answers. Raises `EtcdUnavailable` if there is none."""
    for _ in endpoints:
        try:
            return await etcd.reach()
        except EtcdUnavailable as error:
            last = error
    raise EtcdUnavailable(
        f"no etcd answers at {', '.join(endpoints)} (etcd.endpoints): is `regionquota dev` or your etcd running? {last}"
    ) from last
