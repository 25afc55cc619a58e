"""What may go wrong, by name: each is counted, so that a report says what was really tried."""

from enum import StrEnum
from typing import Final


class Fault(StrEnum):
    CRASH = "crash"
    """A process is dropped at an await, with all it remembers, and starts anew."""
    LOST_REQUEST = "lost_request"
    LOST_REPLY = "lost_reply"
    """The effect happened; who asked is told that nobody answered."""
    DELAY = "delay"
    """A message arrives after its sender has given up, or died, and has perhaps asked again."""
    STALE_READ = "stale_read"
    """An old document, as from a lagging watch or a lagging member."""
    PARTITION = "partition"
    """A region is cut off from etcd."""
    CLOCK_SKEW = "clock_skew"
    """One process's clock jumps, forward or back."""
    ROLLOVER = "rollover"
    """A region meets the end of the accounting period; each process at a moment of its own."""
    JOIN = "join"
    """A region owns something of a quota for the first time."""
    REPEAT = "repeat"
    """A request is sent again, under its own id, whether or not it was answered."""
    CONFLICT = "conflict"
    """A request id is used again with other content."""
    DEPOSED = "deposed"
    """A coordinator tries to write though another leads by now."""
    UNFENCED = "unfenced"
    """A coordinator's write that does not compare its leadership: safety must not depend on that."""
    UNKNOWN_EXECUTOR = "unknown_executor"
    """Work that was started is not heard of until its time is over: whether it happened is unknown."""
    FAILOVER = "failover"
    """A region's database begins a new incarnation, as it was some commits ago, or with all of them."""
    ETCD_RESTORE = "etcd_restore"
    """etcd goes back to an older snapshot."""


class Deed(StrEnum):
    """What operators do, and executors: no faults, but counted as they are."""

    LIMIT = "limit"
    OVERRIDE = "override"
    WEIGHT = "weight"
    DRAIN = "drain"
    BRING_BACK = "bring_back"
    FREEZE = "freeze"
    THAW = "thaw"
    LATE_RECEIPT = "late_receipt"
    """Work of unknown outcome is settled, or given up, after all."""
    TRUST = "trust"
    """An incarnation was compared with etcd, and admits."""


UNFENCED_YET: Final = frozenset({Fault.ETCD_RESTORE})
"""What the product has no fence against yet. Nothing injects these: `world` is where they belong once it has."""
EXPLORED: Final = tuple(fault for fault in Fault if fault not in UNFENCED_YET)
