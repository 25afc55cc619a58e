"""Other processes, as tests treat them."""

import os
import signal
import time
from pathlib import Path


def stall(pid: int) -> None:
    """SIGSTOP, in force when this returns: a thread on another core may go on for a moment and still answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"{pid} does not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
