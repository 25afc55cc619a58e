"""The yardstick: pgbench, one transaction per reserve, with the same UPDATE and INSERT on the same tables."""

import asyncio
import re
from pathlib import Path
from typing import Final

from regionquota.bench.load import Measured
from regionquota.embedded.install import postgres_programs
from regionquota.errors import RegionQuotaError

_TPS: Final = re.compile(r"^tps = ([0-9.]+)", re.MULTILINE)
_SCRIPT: Final = """\
\\set n random(1, {tenants})
BEGIN;
UPDATE quota_counters
   SET available = available - 1, reserved = reserved + 1, version = version + 1
 WHERE tenant_id = 'pgbench-' || :n AND resource = 'unit' AND scope = 'global' AND available >= 1;
INSERT INTO reservations
       (id, tenant_id, resource, scope, epoch, request_id, digest, amount, state, created_at, expires_at)
VALUES (uuidv7(), 'pgbench-' || :n, 'unit', 'global', 0, gen_random_uuid()::text, decode(repeat('7b', 16), 'hex'), 1,
        'PENDING', now(), now() + interval '1 day');
COMMIT;
"""


async def pgbench(dsn: str, scratch: Path, *, tenants: int, clients: int, seconds: int) -> float:
    """Transactions per second. Raises `RegionQuotaError` with what pgbench said."""
    output = await _run(dsn, scratch, tenants, "--jobs=2", f"--client={clients}", f"--time={seconds}")
    found = _TPS.search(output)
    if found is None:
        raise RegionQuotaError(f"pgbench did not say how fast it was: {output[-500:]}")
    return float(found[1])


async def pgbench_at_rate(
    dsn: str, scratch: Path, *, tenants: int, clients: int, seconds: int, per_second: float
) -> Measured:
    """Transactions that are due at random, `per_second` on average, with the time from when each was due."""
    logs = scratch / "pgbench"
    logs.mkdir()
    how = (f"--client={clients}", f"--time={seconds}", f"--rate={per_second}", "--log", f"--log-prefix={logs}/log")
    await _run(dsn, scratch, tenants, "--jobs=1", *how)
    # Each line: client, transaction, microseconds, ...
    lines = [line.split() for log in logs.iterdir() for line in log.read_text().splitlines()]
    return Measured(len(lines), seconds, [int(line[2]) / 1_000_000 for line in lines])


async def _run(dsn: str, scratch: Path, tenants: int, *how: str) -> str:
    script = scratch / f"reserve-{tenants}.sql"
    script.write_text(_SCRIPT.format(tenants=tenants))
    process = await asyncio.create_subprocess_exec(
        postgres_programs() / "pgbench",
        *("--no-vacuum", "--protocol=prepared", *how, f"--file={script}", dsn),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RegionQuotaError(f"pgbench failed: {output.decode()[-500:]}")
    return output.decode()
