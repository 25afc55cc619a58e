import asyncio
import signal
from pathlib import Path

import pytest

from regionquota.embedded import Child


def shell(script: str, lines: list[str]) -> Child:
    return Child("shell", ["sh", "-c", script], output=lines.append)


async def test_lines_reach_the_callback_and_the_code_whoever_waits() -> None:
    lines: list[str] = []
    child = shell("echo one; echo two >&2; printf three; exit 7", lines)
    await child.start()
    assert (7, 7) == tuple(await asyncio.gather(child.wait(), child.wait()))
    assert ["one", "two", "three"] == lines
    assert "two\nthree" == child.last_lines(2)


async def test_last_lines_of_a_log_file_are_of_this_run_only(scratch: Path) -> None:
    log = scratch / "logs" / "child.log"
    for word in ("before", "now"):
        child = Child("echo", ["sh", "-c", f"echo {word}"], output=log)
        await child.start()
        await child.wait()
    assert "before\nnow\n" == log.read_text()
    assert "now" == child.last_lines()


async def test_a_child_that_ignores_the_polite_signal_is_killed() -> None:
    deaf = asyncio.Event()
    child = Child("deaf", ["sh", "-c", "trap '' TERM; echo deaf; sleep 60"], output=lambda _: deaf.set())
    await child.start()
    await asyncio.wait_for(deaf.wait(), 5)
    assert -signal.SIGKILL == await child.stop(patience=0.2)


async def test_exits_are_noticed_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise OSError

    monkeypatch.setattr("os.pidfd_open", refuse)
    child = shell("exit 3", [])
    await child.start()
    assert 3 == await asyncio.wait_for(child.wait(), 5)


async def test_our_variables_do_not_reach_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/elsewhere")
    lines: list[str] = []
    child = shell("echo ${PGDATA-unset}", lines)
    await child.start()
    await child.wait()
    assert ["unset"] == lines
