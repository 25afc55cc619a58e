"""What is broken, in the order in which it is broken."""

from typing import Final

from regionquota.chaos.run import Scenario
from regionquota.chaos.scenarios import daemons, databases, etcd, network

SCENARIOS: Final = {
    one.name: one for one in (*daemons.SCENARIOS, *databases.SCENARIOS, *etcd.SCENARIOS, *network.SCENARIOS)
}

__all__ = ["SCENARIOS", "Scenario"]
