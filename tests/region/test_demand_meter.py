from collections.abc import Sequence

import pytest
from tests.core.builders import NOON, OTHER, QUOTA

from regionquota.adapters.etcd.codec import decode_report, encode_report
from regionquota.core.counter import Counter
from regionquota.core.demand import Demand
from regionquota.core.policy import Priority
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.core.slice import Holding
from regionquota.http.problems import RETRY_DENIED_S
from regionquota.region import demand
from regionquota.region.demand import RETRIED_WITHIN_S, DemandMeter


def holding(key: QuotaKey = QUOTA, *, slice_: int = 100, used: int = 0) -> Holding:
    return Holding(key, Kind.ALLOCATED, 1000, 1, 0, Counter(slice=slice_, available=slice_ - used, used=used))


def report(meter: DemandMeter, holdings: Sequence[Holding], now: float) -> list[Demand]:
    return demand.busiest(meter.take(now).words(holdings))


def test_it_tells_what_was_granted_freed_and_denied_since_the_last_report() -> None:
    meter = DemandMeter(NOON)
    meter.granted(QUOTA, 5)
    meter.granted(QUOTA, 7)
    meter.freed(QUOTA, 3)
    meter.denied(QUOTA, 40)
    expected = Demand(
        QUOTA, slice=100, used=20, reserved=0, granted=12, freed=3, denied=40, seconds=2.5, largest=40, at=NOON + 2.5
    )
    assert [expected] == report(meter, [holding(used=20)], NOON + 2.5)


def test_how_much_was_denied_at_once_is_told_until_the_caller_must_have_come_back() -> None:
    meter = DemandMeter(NOON)
    meter.denied(QUOTA, 40)
    meter.granted(QUOTA, 90)
    told = {seconds: report(meter, [holding()], NOON + seconds)[0].largest for seconds in (5, 10, 15, 20, 25)}
    assert {5: 90, 10: 40, 15: 40, 20: 0, 25: 0} == told


def test_it_is_told_for_longer_than_callers_are_told_to_wait() -> None:
    assert RETRY_DENIED_S < RETRIED_WITHIN_S


def test_who_was_denied_is_told_of_again_though_the_region_owns_nothing() -> None:
    meter = DemandMeter(NOON)
    meter.denied(QUOTA, 40)
    told = []
    for seconds in (5, 10, 15, 20):
        touched = meter.take_touched()
        told.append(
            [word.largest for word in report(meter, [holding(key, slice_=0) for key in touched], NOON + seconds)]
        )
    assert [[40], [40], [40], []] == told


def test_a_clock_that_goes_back_forgets_what_was_denied() -> None:
    meter = DemandMeter(NOON)
    meter.denied(QUOTA, 40)
    report(meter, [holding()], NOON + 5)
    (word,) = report(meter, [holding()], NOON - 100)
    assert 0 == word.largest


def test_each_report_counts_anew() -> None:
    meter = DemandMeter(NOON)
    meter.granted(QUOTA, 5)
    report(meter, [holding()], NOON + 2)
    (word,) = report(meter, [holding()], NOON + 5)
    assert (0, 3.0) == (word.granted, word.seconds)


def test_quotas_are_counted_apart() -> None:
    meter = DemandMeter(NOON)
    meter.granted(QUOTA, 5)
    meter.granted(OTHER, 6)
    words = report(meter, [holding(), holding(OTHER)], NOON + 1)
    assert {QUOTA: 5, OTHER: 6} == {word.key: word.granted for word in words}


def test_a_quota_at_rest_without_anything_is_not_mentioned() -> None:
    assert [] == report(DemandMeter(NOON), [holding(slice_=0)], NOON + 1)


def test_a_denial_of_a_quota_without_a_slice_is_mentioned() -> None:
    meter = DemandMeter(NOON)
    meter.denied(QUOTA, 4)
    assert [4] == [word.denied for word in report(meter, [holding(slice_=0)], NOON + 1)]


def test_a_clock_that_goes_back_makes_no_negative_time() -> None:
    (word,) = report(DemandMeter(NOON), [holding()], NOON - 60)
    assert 0.0 == word.seconds


def test_the_busiest_are_named_when_not_all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MAX_QUOTAS", 2)
    keys = [QuotaKey("acme", name) for name in ("idle", "denied", "busy", "large")]
    meter = DemandMeter(NOON)
    meter.denied(keys[1], 1)
    meter.granted(keys[2], 50)
    words = report(meter, [holding(key, slice_=10_000 if key.resource == "large" else 10) for key in keys], NOON + 1)
    assert ["denied", "busy"] == [word.key.resource for word in words]


def test_it_tells_what_of_the_denials_was_asked_for_at_which_priority() -> None:
    meter = DemandMeter(NOON)
    for amount, priority in ((1, Priority.HIGH), (2, Priority.HIGH), (10, Priority.NORMAL), (40, Priority.LOW)):
        meter.denied(QUOTA, amount, priority)
    (word,) = report(meter, [holding()], NOON + 1)
    assert (53, 3, 40) == (word.denied, word.denied_high, word.denied_low)
    meter.denied(QUOTA, 5, Priority.HIGH)
    (lately,) = meter.so_far([QUOTA], NOON + 2).words([holding()])
    assert (58, 8, 40) == (lately.denied, lately.denied_high, lately.denied_low)


def test_what_was_denied_in_all_is_no_more_than_a_report_can_say() -> None:
    """A report that cannot be read says nothing of any quota."""
    meter = DemandMeter(NOON)
    for priority in (Priority.HIGH, Priority.LOW) * 2:
        meter.granted(QUOTA, MAX_AMOUNT)
        meter.freed(QUOTA, MAX_AMOUNT)
        meter.denied(QUOTA, MAX_AMOUNT, priority)
    (raw,) = encode_report("eu", report(meter, [holding(), holding(OTHER)], NOON + 5))
    _, words = decode_report(b"demand/eu/host-1/0000", raw)
    said = words[0]
    assert [QUOTA, OTHER] == [word.key for word in words]
    assert {MAX_AMOUNT} == {said.granted, said.freed, said.denied, said.denied_high, said.denied_low}
