"""Standard output and errors that are full, closed, or read no further."""

import os
import subprocess
import sys

import pytest

PROGRAM = f"{sys.executable} -m regionquota"


def run(command: str) -> tuple[int, str]:
    """Exit status, and what was said in errors."""
    ended = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("command", ["chaos --list", "chaos --list --json", "--version"])
@pytest.mark.parametrize(("output", "why"), [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")])
def test_output_that_cannot_be_written_is_said_in_one_line(command: str, output: str, why: str) -> None:
    said = f"error: cannot write to standard output: {why}\n"
    assert (1, said) == run(f"{PROGRAM} {command} >{output}")


@pytest.mark.parametrize("command", ["chaos --list", "chaos --list --json", "--version", "explore --seed 3"])
def test_a_reader_that_has_had_enough_is_no_error_to_speak_of(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*PROGRAM.split(), *command.split()], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (1, b"") == (ended.returncode, ended.stderr)


def test_without_standard_errors_the_exit_status_tells() -> None:
    assert (2, "") == run(f"{PROGRAM} chaos --scenario none 2>&-")
