"""Replays demand against running region servers, beside one exact counter, and checks the invariants meanwhile.

trace, generate -- demand per bin and region: from a CSV, or made up
plan            -- what to replay and what to break; `parse_partition`, `parse_window` for the command line
driver          -- `replay`; lane is one region's part of it, calls the HTTP, faults the partitions, progress the bar
load, oracle    -- what was answered, and what one exact counter would have answered
observer        -- etcd's and the databases' histories, and what they prove; transfers reads movements out of them
report          -- `Report`
"""

from regionquota.replay.driver import replay
from regionquota.replay.generate import follow_the_sun
from regionquota.replay.observer import Observation, Proof, Sights
from regionquota.replay.plan import (
    Faults,
    Partition,
    ReplayPlan,
    Targets,
    Window,
    parse_partition,
    parse_window,
)
from regionquota.replay.report import Report
from regionquota.replay.trace import Trace, parse_trace, read_trace

__all__ = [
    "Faults",
    "Observation",
    "Partition",
    "Proof",
    "ReplayPlan",
    "Report",
    "Sights",
    "Targets",
    "Trace",
    "Window",
    "follow_the_sun",
    "parse_partition",
    "parse_trace",
    "parse_window",
    "read_trace",
    "replay",
]
