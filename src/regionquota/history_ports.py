"""What the outside must offer so that an etcd that went backwards is noticed and recovered. As the ports in `ports`."""

from collections.abc import Sequence
from typing import Protocol

from regionquota.core.history import History, Sight, Standing
from regionquota.core.quota import Region
from regionquota.core.recovery import Statement
from regionquota.ports import RegionRecord


class HistoryStore(Protocol):
    """etcd's word on itself. Every call may raise `EtcdUnavailable`, but is answered also where all others are refused
    because etcd went backwards.
    """

    async def read(self) -> tuple[int, History | None]:
        """Linearizable. None: this etcd has never heard of any."""
        ...

    async def swap(self, history: History, revision: int) -> bool:
        """Write if what stands there is still at `revision` (0: is none)."""
        ...

    async def record(self, region: Region) -> RegionRecord | None: ...

    async def state(self, statement: Statement) -> None:
        """Replace what the region has stated before."""
        ...

    async def statements(self) -> Sequence[Statement]:
        """Only what is complete."""
        ...

    async def forget_statements(self) -> None: ...


class StandingStore(Protocol):
    """What a region's database remembers. Every call may raise `StoreUnavailable`."""

    async def standing(self) -> Standing | None:
        """Alone: to recall everything every counter is looked at."""
        ...

    async def recall(self) -> tuple[Standing | None, Sight]:
        """None: it has not met any history yet. The sight includes every revision that was ever applied to a slice."""
        ...

    async def adopt(self, before: Standing | None, standing: Standing, *, distrust: bool = False) -> bool:
        """From now on nothing that was read under `before` changes a slice. False: it is under another by now.

        Under a new history, revisions of the former one are no longer newer than anything. After another eviction,
        and if `distrust` is asked for, nothing is admitted until the slices were compared with etcd.
        """
        ...

    async def remember(self, history: str, sight: Sight) -> None:
        """Unless it is in another history by now, or has seen more."""
        ...
