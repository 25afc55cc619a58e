"""What an operator's command needs: etcd, and the regions' databases where they are named."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from regionquota.adapters.etcd import history
from regionquota.adapters.postgres.store import PostgresRegionStore
from regionquota.adapters.postgres.transaction import Pool, open_pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.bootstrap.connections import connect_etcd, deadlines_of
from regionquota.config import Config, require_deployment
from regionquota.core.history import History
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import ConfigError
from regionquota.history_ports import HistoryStore
from regionquota.ledger_ports import UsageLedger
from regionquota.ports import AllocationStore, Directory, RegionStore, Stored

POOL_SIZE = 2
STATEMENT_TIMEOUT_S = 60.0
"""An operator's reads may take longer than a caller's reserve."""
HISTORY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Operator:
    allocations: AllocationStore
    directory: Directory
    stores: Mapping[Region, RegionStore]
    histories: HistoryStore
    allocations_in: Callable[[History], AllocationStore]
    history: Callable[[QuotaKey, int, int], Awaitable[Sequence[Stored]]]
    ledgers: Mapping[Region, UsageLedger] = field(default_factory=dict)


@asynccontextmanager
async def operator(config: Config, *, databases: bool = False) -> AsyncIterator[Operator]:
    """`databases` also connects to each region's Postgres. Raises `ConfigError`, `Unavailable`."""
    etcd = connect_etcd(config.etcd)
    pools: dict[Region, Pool] = {}
    try:
        stores: dict[Region, RegionStore] = {}
        ledgers: dict[Region, UsageLedger] = {}
        if databases:
            require_deployment(config)
            deadlines = replace(deadlines_of(config.postgres), statement=STATEMENT_TIMEOUT_S)
            for name, region in config.deployment.regions.items():
                if region.dsn is None:
                    raise ConfigError(f"deployment.regions.{name}.dsn is missing: this command reads its database")
                pools[name] = await open_pool(region.dsn, password=region.secret(), size=POOL_SIZE, deadlines=deadlines)
                stores[name] = PostgresRegionStore(pools[name], name, deadlines)
                ledgers[name] = PostgresUsageLedger(pools[name], deadlines)
        told = partial(history, etcd, deadline_s=HISTORY_TIMEOUT_S)
        yield Operator(etcd.allocations, etcd.directory, stores, etcd.histories, etcd.allocations_in, told, ledgers)
    finally:
        await asyncio.gather(*(pool.close() for pool in pools.values()))
        await etcd.close()
