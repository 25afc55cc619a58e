"""Ctrl-C in what works without ever waiting."""

import signal
import subprocess
import sys

import psutil
import pytest

PROGRAM = [sys.executable, "-m", "regionquota"]
INTERRUPTED = 130


def interrupt(child: "subprocess.Popen[str]") -> tuple[int, str]:
    """As a terminal does: the whole group hears it. Exit status, and what was said since."""
    family = [child, *psutil.Process(child.pid).children(recursive=True)]
    for one in family:
        one.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=30)
    assert not any(psutil.pid_exists(one.pid) for one in family)
    return child.returncode, said


@pytest.mark.parametrize("options", [["--workers", "2"], ["--workers", "1"], ["--exhaustive"]])
def test_an_exploration_ends_at_once(options: list[str]) -> None:
    command = [*PROGRAM, "explore", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        status, said = interrupt(child)
    assert "Traceback" not in said
    assert INTERRUPTED == status


def test_what_a_script_has_started_in_the_background_ends_too() -> None:
    """Such a job is born with SIGINT ignored."""
    script = ["sh", "-c", '"$@" & wait', "sh", *PROGRAM, "explore", "--workers", "1"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline()
        (job,) = psutil.Process(shell.pid).children()
        job.send_signal(signal.SIGINT)
        psutil.wait_procs([job], timeout=30)
        is_over = not job.is_running()
        if not is_over:
            job.kill()
    assert is_over
