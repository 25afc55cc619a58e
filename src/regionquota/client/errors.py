"""What can go wrong for a caller, as one tree.

QuotaError
|-- Denied       no room, or a rule against it: nothing is held
|-- NotFound     no such quota or reservation
|-- Conflict     the reservation's state forbids it, or an id is known with other content
|-- Refused      the request is wrong; `field` names what
`-- Unavailable  no answer in time: whether it was done is not known, the same ids may be sent again
"""

from collections.abc import Mapping
from typing import Any


class QuotaError(Exception):
    """`problem` is the server's own word (RFC 9457), empty where there is none."""

    def __init__(self, message: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.problem: Mapping[str, Any] = problem or {}

    @property
    def reason(self) -> str | None:
        """Such as OVER_LIMIT, TENANT_SUSPENDED, UNKNOWN_QUOTA, WRONG_STATE."""
        return self.problem.get("reason")


class Denied(QuotaError):  # noqa: N818 - reads as a sentence where it is raised
    """Nothing is held."""

    @property
    def retry_after_s(self) -> float:
        return float(self.problem.get("retry_after_s", 0.0))


class NotFound(QuotaError):  # noqa: N818
    """Limits are set by operators; reservations are found in the region that made them."""


class Conflict(QuotaError):  # noqa: N818
    """`status` is that of the reservation, None where it is about an id."""

    @property
    def status(self) -> str | None:
        return self.problem.get("reservation_status")


class Refused(QuotaError):  # noqa: N818
    """A mistake in the request; a repeat is refused alike."""

    @property
    def field(self) -> str | None:
        return self.problem.get("field")


class Unavailable(QuotaError):  # noqa: N818
    """`maybe_done`: a server may have heard the request."""

    def __init__(self, message: str, *, maybe_done: bool) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done
