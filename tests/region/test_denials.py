"""What a server remembers of its last denials."""

import pytest
from tests.core.builders import NOON, OTHER, QUOTA

from regionquota.core.commands import Denied, DenyReason
from regionquota.core.counter import Counter
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.slice import Holding
from regionquota.region import denials
from regionquota.region.denials import Denials, Pool


def denied(amount: int = 8, key: QuotaKey = QUOTA) -> Denied:
    counter = Counter(slice=9, available=7, used=2)
    return Denied(DenyReason.OVER_LIMIT, amount, Holding(key, Kind.ALLOCATED, 100, 1, 0, counter))


def test_the_newest_is_remembered() -> None:
    noted = Denials()
    noted.note(QUOTA, denied(5), NOON, None)
    noted.note(QUOTA, denied(8), NOON + 1, Pool(91, 50, takes_part=True, below_floor={"eu"}))
    last = noted.last(QUOTA)
    assert last is not None
    assert (NOON + 1, 8) == (last.at, last.answer.amount)
    assert noted.last(OTHER) is None


def test_what_another_quota_denied_is_remembered_of_both() -> None:
    noted = Denials()
    noted.note(OTHER, denied(), NOON, None)
    assert noted.last(QUOTA) == noted.last(OTHER) is not None


def test_the_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials, "MOST", 2)
    noted = Denials()
    for name in ("a", "b", "a", "c"):
        noted.note(key := QuotaKey("acme", name), denied(key=key), NOON, None)
    assert {"a": True, "b": False, "c": True} == {
        name: noted.last(QuotaKey("acme", name)) is not None for name in ("a", "b", "c")
    }
