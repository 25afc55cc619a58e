"""Connections to Postgres and etcd, as the configuration describes them."""

import structlog
from stamina import AsyncRetryingCaller

from regionquota.adapters.etcd import EtcdClient
from regionquota.adapters.postgres.transaction import Deadlines, Distrust, Pool, open_pool
from regionquota.config import EtcdConfig, PostgresConfig
from regionquota.core.history import Bond
from regionquota.errors import StoreUnavailable

_log = structlog.get_logger(__name__)

START_PATIENCE_S = 60.0
"""How long a daemon waits at its start for a Postgres that does not answer yet."""


def connect_etcd(config: EtcdConfig, bond: Bond | None = None) -> EtcdClient:
    return EtcdClient.connect(
        config.endpoints,
        prefix=config.prefix,
        timeout_s=config.timeout_s,
        ca_file=config.ca_file,
        cert_file=config.cert_file,
        key_file=config.key_file,
        server_name=config.server_name,
        bond=bond,
    )


def deadlines_of(config: PostgresConfig) -> Deadlines:
    return Deadlines(
        acquire=config.statement_timeout_s,
        connect=config.connect_timeout_s,
        statement=config.statement_timeout_s,
        lock=config.lock_timeout_s,
        idle_in_transaction=config.idle_in_transaction_timeout_s,
    )


async def connect_postgres(config: PostgresConfig, *, patience_s: float = START_PATIENCE_S) -> Pool:
    """Raises `StoreUnavailable` if Postgres does not answer within `patience_s`."""
    attempts = AsyncRetryingCaller(attempts=None, timeout=patience_s, wait_initial=0.1, wait_max=2.0)
    return await attempts.on(StoreUnavailable)(
        open_pool,
        config.dsn,
        password=config.secret(),
        size=config.pool_size + 1,  # one is kept for the process's slot
        deadlines=deadlines_of(config),
        distrust=Distrust.NEW_TIMELINES if config.trust_restarts else Distrust.EVERY_START,
    )
