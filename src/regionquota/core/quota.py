"""What a quota is called and what kind of thing it limits."""

import hashlib
import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

MAX_AMOUNT: Final = 2**63 - 1
"""Largest amount, slice, limit and sum: what a Postgres bigint holds."""

GLOBAL_SCOPE: Final = "global"
BUCKETS: Final = 256
"""Tenants are spread over this many buckets, in etcd's keys and in reservation ids. Never changes."""

_TENANTS_REMEMBERED: Final = 2**18
"""Whose buckets a process knows by heart: more than are active at once, for a round asks of all of them in turn."""
MAX_WEIGHT: Final = 10_000_000
"""Of a region in the spread of what nobody needs; 100 is usual."""
MAX_IDENTIFIER_BYTES: Final = 256
_IDENTIFIER: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ufffd\ud800-\udfff]+")

Region: TypeAlias = str


class Kind(StrEnum):
    ALLOCATED = "allocated"
    """Held until it is given back: running vCPUs, stored bytes."""
    CONSUMABLE = "consumable"
    """Used up, and counted from zero in each period of the tenant's calendar."""
    RATE = "rate"
    """Leaks away at a steady rate; the limit is the burst."""


class QuotaKey(NamedTuple):
    """A tuple, for it is hashed many times per call."""

    tenant: str
    resource: str
    scope: str = GLOBAL_SCOPE

    def __str__(self) -> str:
        return f"{self.tenant}/{self.resource}/{self.scope}"


REGION_SCOPE: Final = "region:"
"""Scopes that begin so belong to the one region they name, whole."""


def home_of(scope: str) -> Region | None:
    """The region that a scope belongs to; None for all that are shared."""
    return scope.removeprefix(REGION_SCOPE) if scope.startswith(REGION_SCOPE) else None


@lru_cache(maxsize=_TENANTS_REMEMBERED)
def bucket_of(tenant: str) -> int:
    """0 .. BUCKETS - 1, the same on every machine and in every version."""
    return hashlib.blake2s(tenant.encode(), digest_size=1).digest()[0]


def is_identifier(text: str) -> bool:
    """1 to MAX_IDENTIFIER_BYTES bytes of UTF-8 without control characters: what every store can hold."""
    if text.isascii() and text.isprintable():  # nearly all of them, in a tenth of the time
        return 1 <= len(text) <= MAX_IDENTIFIER_BYTES
    return _IDENTIFIER.fullmatch(text) is not None and len(text.encode()) <= MAX_IDENTIFIER_BYTES
