"""The yardstick: pgbench, one transaction per reserve, with the same UPDATE and INSERT on the same tables."""

import asyncio
import re
from pathlib import Path
from typing import Final

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
    script = scratch / f"reserve-{tenants}.sql"
    script.write_text(_SCRIPT.format(tenants=tenants))
    process = await asyncio.create_subprocess_exec(
        postgres_programs() / "pgbench",
        *("--no-vacuum", "--protocol=prepared", f"--client={clients}", "--jobs=2", f"--time={seconds}"),
        *(f"--file={script}", dsn),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    found = _TPS.search(output.decode())
    if process.returncode != 0 or found is None:
        raise RegionQuotaError(f"pgbench failed: {output.decode()[-500:]}")
    return float(found[1])
