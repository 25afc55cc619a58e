"""Ctrl-C in the middle: what was begun is ended in order, reported in part, and the shell hears of it."""

import asyncio
import signal

from tests.end_to_end.support import Deployment, begun, read_until

INTERRUPTED = 130


async def interrupt(child: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """Exit status, and what it said since."""
    child.send_signal(signal.SIGINT)
    said, _ = await asyncio.wait_for(child.communicate(), 60)
    return child.returncode, said.decode()


async def test_a_replay_reports_in_part(deployment: Deployment) -> None:
    async with begun("replay", "--bins", "400", "--config", str(deployment.file)) as child:
        await read_until(child, "admitted/s")
        status, said = await interrupt(child)
    assert "PARTIAL: interrupted after" in said
    assert INTERRUPTED == status


async def test_a_demo_reports_in_part() -> None:
    async with begun("demo", "--regions", "solo", "--bins", "400") as child:
        await read_until(child, "admitted/s")
        status, said = await interrupt(child)
    assert "PARTIAL: interrupted after" in said
    assert INTERRUPTED == status
