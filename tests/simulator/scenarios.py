"""Small scenarios for these tests."""

from pathlib import Path
from typing import Any

from regionquota.simulator.demand import Workload, workload
from regionquota.simulator.reading import checked
from regionquota.simulator.scenario import Scenario


def scenario(**parts: Any) -> Scenario:
    """Three regions that follow the sun for 20 bins of half a minute, unless said otherwise."""
    plain = {
        "name": "test",
        "shows": "something",
        "regions": {"eu": {}, "us": {}, "ap": {}},
        "demand": {"shape": "follow_the_sun", "bins": 20, "bin_s": 30, "mean": 20},
        "quota": {"limit_factor": 1.0},
    }
    for name, part in parts.items():
        plain[name] = {**plain[name], **part} if isinstance(plain.get(name), dict) and name != "regions" else part
    return checked(plain, "test")


def work_of(wanted: Scenario) -> Workload:
    return workload(wanted, Path())
