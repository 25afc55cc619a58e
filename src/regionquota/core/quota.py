"""What a quota is called and what kind of thing it limits."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

MAX_AMOUNT: Final = 2**63 - 1
"""Largest amount, slice, limit and sum: what a Postgres bigint holds."""

GLOBAL_SCOPE: Final = "global"
BUCKETS: Final = 256
"""Tenants are spread over this many buckets, in etcd's keys and in reservation ids. Never changes."""

Region: TypeAlias = str


class Kind(StrEnum):
    ALLOCATED = "allocated"
    """Held until it is given back: running vCPUs, stored bytes."""
    CONSUMABLE = "consumable"
    """Used up, and counted from zero in each calendar month (UTC)."""


@dataclass(frozen=True, slots=True, order=True)
class QuotaKey:
    tenant: str
    resource: str
    scope: str = GLOBAL_SCOPE

    def __str__(self) -> str:
        return f"{self.tenant}/{self.resource}/{self.scope}"


def bucket_of(tenant: str) -> int:
    """0 .. BUCKETS - 1, the same on every machine and in every version."""
    return hashlib.blake2s(tenant.encode(), digest_size=1).digest()[0]
