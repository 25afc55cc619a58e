"""What is broken, in the order in which it is broken."""

from typing import Final

from regionquota.chaos.run import Scenario
from regionquota.chaos.scenarios import daemons, databases, etcd, network, storm

_MODULES: Final = (daemons, databases, etcd, network, storm)
SCENARIOS: Final = {one.name: one for module in _MODULES for one in module.SCENARIOS}

__all__ = ["SCENARIOS", "Scenario"]
