"""What the outside must offer to a region that learns what it is asked for. As the ports in `ports`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from regionquota.core.forecast import Counted, Past
from regionquota.core.quota import QuotaKey


class DemandHistory(Protocol):
    """What a region was asked for, by quota and hour; all its servers add to it. An hour is named by its begin, in
    seconds since 1970. Every call may raise `StoreUnavailable`.
    """

    async def add(self, hour: float, counted: Mapping[QuotaKey, Counted]) -> None:
        """`OutcomeUnknown`: it may have been added or not."""
        ...

    async def recall(self, keys: Collection[QuotaKey], hours: Collection[float]) -> Sequence[Past]:
        """Of those quotas that were ever asked for, these hours."""
        ...

    async def forget(self, before: float, most: int) -> int:
        """Delete up to `most` of the hours that began before `before`. Returns how many."""
        ...
