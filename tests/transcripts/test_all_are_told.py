"""What holds for all transcripts together."""

from pathlib import Path

from tests.transcripts.page import WIDTH

HERE = Path(__file__).parent


def test_every_transcript_has_its_story() -> None:
    told = {path.stem for path in HERE.glob("*.txt")}
    assert told == {name for name in told if (HERE / f"test_{name}.py").is_file()}


def test_a_transcript_fits_a_terminal() -> None:
    assert [] == [path.name for path in HERE.glob("*.txt") if max(map(len, path.read_text().splitlines())) > WIDTH]
