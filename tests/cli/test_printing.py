"""What is printed of names that callers chose."""

import io

import pytest

from regionquota.cli.frame import print_table, say


@pytest.mark.parametrize("name", ["[red]", r"\[red]", r"\[/red]", "[/]", "a\\", ":smile:", "eu:us:ap"])
def test_a_name_that_reads_like_markup_is_printed_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = {channel: io.StringIO() for channel in ("out", "err")}
    for channel, sink in sinks.items():
        monkeypatch.setattr(f"regionquota.cli.frame.{channel}._file", sink)
    print_table((name,), [(name,)], title=name)
    say("error:", "bold red", f"there is no quota {name}")
    assert 3 == sinks["out"].getvalue().count(name)
    assert f"error: there is no quota {name}\n" == sinks["err"].getvalue()
