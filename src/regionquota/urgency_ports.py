"""What the outside must offer so that a region that runs short is heard before the next round. As those in `ports`."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from regionquota.core.demand import Demand
from regionquota.core.quota import Region
from regionquota.ports import Session


@dataclass(frozen=True, slots=True)
class Cry:
    """What a region's server denies, and finds nothing in the pool for."""

    region: Region
    instance: str
    words: Sequence[Demand]


class UrgencyBoard(Protocol):
    """Every call may raise `EtcdUnavailable`."""

    async def cry(self, session: Session, cry: Cry) -> None:
        """Replace this instance's last. `EtcdUnavailable` also for a session that is gone."""
        ...

    def cries(self) -> AsyncGenerator[Sequence[Cry], None]:
        """Those that are made from now on, in order. To be closed (`aclosing`); ends only by `EtcdUnavailable`."""
        ...
