"""Reservation ids: UUID version 7 (RFC 9562), so they sort by time, with the tenant's bucket in the random part."""

import uuid
from typing import Final

from regionquota.core.quota import bucket_of

_VERSION: Final = 7 << 76
_VARIANT: Final = 2 << 62


def reservation_id(tenant: str, now: float, randomness: int) -> str:
    """`now` in seconds since 1970; `randomness` is 66 random bits."""
    milliseconds = int(now * 1000) & (1 << 48) - 1
    high = randomness >> 62 & 0xF
    low = randomness & (1 << 62) - 1
    digits = f"{milliseconds << 80 | _VERSION | high << 72 | bucket_of(tenant) << 64 | _VARIANT | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def bucket_of_id(reservation_id: str) -> int | None:
    """The bucket in an id, or None: it is none of ours, or not spelt as we spell it."""
    try:
        known = uuid.UUID(reservation_id)
    except ValueError:
        return None
    if str(known) != reservation_id or known.version != 7:
        return None
    return known.int >> 64 & 0xFF
