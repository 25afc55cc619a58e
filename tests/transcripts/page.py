"""How a transcript is set: a title, its moral, and lines of time, who, what."""

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

WIDTH: Final = 110
_WHO: Final = 15
_INDENT: Final = " " * (10 + _WHO)


class Page:
    def __init__(self, title: str, moral: str) -> None:
        self._lines = [title, "=" * len(title), "", *textwrap.wrap(" ".join(moral.split()), WIDTH), ""]
        self._blank = True

    @property
    def text(self) -> str:
        return "\n".join(self._lines).rstrip() + "\n"

    def tell(self, now: float, who: str, what: str) -> None:
        time = datetime.fromtimestamp(now, UTC).strftime("%H:%M:%S")
        begun = f"{time}  {who:<{_WHO}}{what}"
        self._lines += textwrap.wrap(begun, WIDTH, subsequent_indent=_INDENT, break_long_words=False)
        self._blank = False

    def table(self, lines: Sequence[str]) -> None:
        """Set apart by an empty line before and after."""
        if not self._blank:
            self._lines.append("")
        self._lines += [f"    {line}".rstrip() for line in lines]
        self._lines.append("")
        self._blank = True
