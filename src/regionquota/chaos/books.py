"""What a region's database says: read whole after a scenario, when nobody writes any more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State

_HOLDS: Final = """
SELECT id::text, tenant_id, resource, scope, request_id, amount, state, actual, operation_id FROM reservations
"""
_LINES: Final = """
SELECT tenant_id, resource, scope, kind, delta, reservation_id::text, request_id, extract(epoch FROM at) AS at
  FROM usage_ledger
 ORDER BY id
"""
_ADJUSTED: Final = "SELECT tenant_id, resource, scope, request_id, delta FROM adjustments"
_BALANCES: Final = """
SELECT tenant_id, resource, scope, sum(slice) AS slice, sum(used) AS used, sum(reserved) AS reserved,
       sum(overdraft_issued - overdraft_repaid) AS debt
  FROM quota_counters
 GROUP BY tenant_id, resource, scope
"""
_SLICES: Final = """
SELECT tenant_id, resource, scope, revision, before, after, extract(epoch FROM at) AS at
  FROM slice_ledger
 ORDER BY id
"""
READ_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Held:
    id: str
    key: QuotaKey
    request_id: str
    amount: int
    state: State
    actual: int | None = None
    operation_id: str | None = None


@dataclass(frozen=True, slots=True)
class UsageLine:
    key: QuotaKey
    kind: str
    delta: int
    reservation_id: str | None = None
    request_id: str | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Adjusted:
    key: QuotaKey
    request_id: str
    delta: int


@dataclass(frozen=True, slots=True)
class Balance:
    key: QuotaKey
    slice: int
    used: int
    reserved: int
    debt: int = 0


@dataclass(frozen=True, slots=True)
class SliceRow:
    key: QuotaKey
    revision: int
    before: int
    after: int
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Books:
    """Everything of one region, in the order in which it was written where there is one."""

    holds: Sequence[Held] = ()
    lines: Sequence[UsageLine] = ()
    adjusted: Sequence[Adjusted] = ()
    balances: Sequence[Balance] = ()
    slices: Sequence[SliceRow] = ()


async def read_books(dsn: str) -> Books:
    """Of one moment. Raises what asyncpg raises."""
    conn = await asyncpg.connect(dsn, ssl=False, timeout=READ_TIMEOUT_S, command_timeout=READ_TIMEOUT_S)
    try:
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            return Books(
                holds=[_held(row) for row in await conn.fetch(_HOLDS)],
                lines=[
                    UsageLine(
                        _key(row), row["kind"], row["delta"], row["reservation_id"], row["request_id"], float(row["at"])
                    )
                    for row in await conn.fetch(_LINES)
                ],
                adjusted=[Adjusted(_key(row), row["request_id"], row["delta"]) for row in await conn.fetch(_ADJUSTED)],
                balances=[
                    Balance(_key(row), int(row["slice"]), int(row["used"]), int(row["reserved"]), int(row["debt"]))
                    for row in await conn.fetch(_BALANCES)
                ],
                slices=[
                    SliceRow(_key(row), row["revision"], row["before"], row["after"], float(row["at"]))
                    for row in await conn.fetch(_SLICES)
                ],
            )
    finally:
        await conn.close()


def _key(row: asyncpg.Record) -> QuotaKey:
    return QuotaKey(row["tenant_id"], row["resource"], row["scope"])


def _held(row: asyncpg.Record) -> Held:
    own = (row["request_id"], row["amount"], State(row["state"]), row["actual"], row["operation_id"])
    return Held(row["id"], _key(row), *own)
