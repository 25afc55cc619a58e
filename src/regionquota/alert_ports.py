"""What alerts on usage need of the outside; see `ports`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from regionquota.core.alerts import Mark
from regionquota.core.quota import QuotaKey
from regionquota.ports import Fence


@dataclass(frozen=True, slots=True)
class StoredMark:
    revision: int
    mark: Mark


class MarkStore(Protocol):
    """What has been told of quotas, for whoever leads next. Every call may raise `EtcdUnavailable`."""

    async def marks(self) -> Mapping[QuotaKey, StoredMark]: ...

    async def swap_mark(self, key: QuotaKey, revision: int, mark: Mark | None, fence: Fence) -> int | None:
        """Write, or with None delete, if the mark is still at `revision` (0: there is none) and `fence` holds.

        Returns the new revision, or None: something was changed by somebody else, nothing by this call.
        """
        ...
