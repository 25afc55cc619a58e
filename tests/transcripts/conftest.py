"""Stories are compared with the text beside them, or written anew."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from tests.transcripts.page import Page
from tests.transcripts.stage import Stage

Tell: TypeAlias = Callable[..., AbstractContextManager[Stage]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-transcripts", action="store_true", help="write tests/transcripts/*.txt anew")


@pytest.fixture(autouse=True)
def names_of_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    """For readers; they are random elsewhere."""
    names = chain(("first", "second", "third"), repeat("another"))
    for module in ("histories", "recovery"):
        monkeypatch.setattr(f"regionquota.{module}.new_name", lambda: next(names))


@pytest.fixture
def tell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Begins a page; at its end it is compared with the text that has the name of the test."""
    path = Path(__file__).parent / f"{request.node.name.removeprefix('test_')}.txt"

    @contextmanager
    def telling(title: str, moral: str, **more: Any) -> Iterator[Stage]:
        page = Page(title, moral)
        stage = Stage(page, **more)
        # A coordinator asks this how old its lease is.
        monkeypatch.setattr("regionquota.coordinator.leading.time", SimpleNamespace(monotonic=stage.clock.now))
        yield stage
        if request.config.getoption("rewrite_transcripts", default=False):
            path.write_text(page.text)
        assert path.is_file(), f"no {path.name} yet: --rewrite-transcripts writes it"
        assert path.read_text() == page.text, "look at the difference, then --rewrite-transcripts"

    return telling
