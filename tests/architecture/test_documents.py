"""What the documents repeat of the code is what the code says."""

from pathlib import Path

from regionquota.core.reservation import diagram

ROOT = Path(__file__).parents[2]


def test_the_diagram_of_states_is_drawn_from_the_table() -> None:
    assert diagram() in (ROOT / "docs" / "ledger.md").read_text()
