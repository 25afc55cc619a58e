"""What the servers answer. Fields of later releases are passed over."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from regionquota.client.errors import Conflict, Denied, NotFound, QuotaError, Refused, Unavailable

T = TypeVar("T")


class HeldLine(msgspec.Struct, frozen=True):
    """A further budget that is charged."""

    tenant_id: str
    resource: str
    scope: str
    amount: int
    actual_amount: int | None = None


class Reservation(msgspec.Struct, frozen=True):
    """As the server told it last. `status` is PENDING, STARTED, UNKNOWN, COMMITTED, RELEASED or EXPIRED.

    What only a granted reserve tells: `remaining` in the region's slice and the `limit` (None also where there is no
    limit), when a consumable quota's period ends (`charged_until`), and what would have denied it (`would_deny`) if
    the limit were enforced.
    """

    reservation_id: str
    request_id: str
    status: str
    tenant_id: str
    resource: str
    scope: str
    amount: int
    created_at: datetime
    expires_at: datetime
    actual_amount: int | None = None
    operation_id: str | None = None
    settled_at: datetime | None = None
    remaining: int | None = None
    limit: int | None = None
    charged_until: datetime | None = None
    would_deny: str | None = None
    lines: tuple[HeldLine, ...] = ()


class Adjusted(msgspec.Struct, frozen=True):
    used: int
    available: int


def read(kind: type[T], raw: bytes) -> T:
    """Raises `Unavailable` for what no server of ours answers: somebody in between has."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unavailable(f"the answer cannot be read: {error}", maybe_done=True) from error


def refusal(status: int, raw: bytes) -> QuotaError:
    """The error that a 4xx answer is."""
    try:
        problem = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = {}
    kind = {404: NotFound, 409: Conflict, 429: Denied}.get(status, Refused)
    return kind(str(problem.get("detail") or f"the server answers {status}"), problem)
