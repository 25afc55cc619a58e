"""What keeps the ledger's house in a region daemon."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from regionquota.adapters.archive import DirectoryArchive
from regionquota.adapters.postgres.demand_history import PostgresDemandHistory
from regionquota.adapters.postgres.partitions import PostgresLedgerUpkeep
from regionquota.adapters.postgres.transaction import Pool
from regionquota.adapters.postgres.usage import PostgresUsageLedger
from regionquota.bootstrap.clock import SystemClock
from regionquota.bootstrap.connections import deadlines_of
from regionquota.config import Config
from regionquota.errors import ConfigError, StoreUnavailable
from regionquota.ledger_ports import Ahead
from regionquota.loops import forever, stop
from regionquota.region.housekeeping import Housekeeping, Keeping
from regionquota.telemetry import Telemetry

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def housekeeping(config: Config, telemetry: Telemetry, pool: Pool) -> AsyncIterator[None]:
    """Partitions are there when the block begins, or what they should hold goes to the default ones.

    Raises `ConfigError` if the archive is no directory.
    """
    ledger, deadlines = config.ledger, deadlines_of(config.postgres)
    directory = ledger.archive_directory
    if directory is not None and not directory.is_dir():
        raise ConfigError(f"ledger.archive_directory: {directory} is no directory: create it, or leave the key out")
    house = Housekeeping(
        PostgresLedgerUpkeep(pool, deadlines),
        PostgresUsageLedger(pool, deadlines),
        None if directory is None else DirectoryArchive(directory, config.region.name),
        SystemClock(),
        Keeping(
            days_ahead=ledger.days_ahead,
            weeks_ahead=ledger.weeks_ahead,
            retention_days=ledger.retention_days,
            idempotency_days=ledger.idempotency_days,
            meter_days=ledger.meter_days,
            batch=ledger.batch,
        ),
        _show(telemetry),
        PostgresDemandHistory(pool, deadlines),
    )
    try:
        await house.prepare()
    except StoreUnavailable as error:
        _log.warning("serving begins without new partitions", error=str(error))
    task = asyncio.create_task(forever("keep the ledger's house", house.step, ledger.interval_s))
    try:
        yield
    finally:
        await stop([task])


def _show(telemetry: Telemetry) -> Callable[[Sequence[Ahead]], None]:
    instruments = telemetry.instruments

    def show(tables: Sequence[Ahead]) -> None:
        for one in tables:
            instruments.partitions_ahead_days.set(one.days, {"table": one.table})
            instruments.homeless_rows.set(one.homeless_rows, {"table": one.table})

    return show
