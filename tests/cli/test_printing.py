"""What commands print: names that callers chose, and what failed."""

import io
from collections.abc import Sequence

import pytest
import typer

from regionquota.cli.frame import command, print_table, say
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.exit_status import INTERRUPTED


@pytest.mark.parametrize("name", ["[red]", r"\[red]", r"\[/red]", "[/]", "a\\", ":smile:", "eu:us:ap"])
def test_a_name_that_reads_like_markup_is_printed_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = {channel: io.StringIO() for channel in ("out", "err")}
    for channel, sink in sinks.items():
        monkeypatch.setattr(f"regionquota.cli.frame.{channel}._file", sink)
    print_table((name,), [(name,)], title=name)
    say("error:", "bold red", f"there is no quota {name}")
    assert 3 == sinks["out"].getvalue().count(name)
    assert f"error: there is no quota {name}\n" == sinks["err"].getvalue()


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ([Unavailable("eu does not answer"), InvalidRequest("to", "unknown region us")], 1),
        ([Unavailable("eu does not answer"), KeyboardInterrupt()], INTERRUPTED),
    ],
)
def test_what_failed_in_two_ways_at_once_is_told_in_lines(
    errors: Sequence[BaseException], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @command
    async def work() -> None:
        raise BaseExceptionGroup("both", errors)

    with pytest.raises(typer.Exit) as ended:
        work()
    assert status == ended.value.exit_code
    assert "error: eu does not answer\n" in capsys.readouterr().err
