"""Documents as they stand in etcd, where other releases read them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.builders import NOON

from regionquota.adapters.etcd.codec import (
    LARGEST_REPORT,
    decode_allocation,
    decode_presence,
    decode_region,
    decode_report,
    encode_allocation,
    encode_presence,
    encode_region,
    encode_report,
)
from regionquota.core.allocation import UNLIMITED, Allocation, Move, Retired, VersionedLimit
from regionquota.core.demand import Demand
from regionquota.core.eviction import Eviction
from regionquota.core.periods import Calendar, Period
from regionquota.core.policy import Enforcement, QuotaPolicy, Refill
from regionquota.core.quota import MAX_AMOUNT, MAX_WEIGHT, Kind, QuotaKey
from regionquota.core.region_rules import RegionRules
from regionquota.errors import UnreadableDocument
from regionquota.ports import Frozen, FrozenBy, Presence, RegionRecord, RegionStatus

KEY = b"/regionquota/alloc/3f/acme/vcpu/global"

ALLOCATION = Allocation(
    kind=Kind.CONSUMABLE,
    plan=VersionedLimit(1000, 3),
    override=VersionedLimit(None, 2),
    limit=1000,
    pool=90,
    retired={"ap": Retired(10, 24_320)},
    slices={"eu": 600, "us": 300},
    moves=[Move("m1", "eu", "us", 40, 1_800_000_000.5, 60), Move("m2", "us", None, 1)],
    epoch=24_321,
)

AS_JSON = (
    '{"v":1,"kind":"consumable","plan":{"amount":1000,"version":3},"override":{"amount":null,"version":2},'
    '"limit":1000,"pool":90,"retired":{"ap":{"units":10,"epoch":24320}},"slices":{"eu":600,"us":300},"moves":['
    '{"id":"m1","from":"eu","to":"us","amount":40,"requested_at":1800000000.5,"believed":60},'
    '{"id":"m2","from":"us","to":null,"amount":1,"requested_at":0.0,"believed":0}],"epoch":24321,'
    '"policy":{"calendar":{"period":"month","time_zone":"UTC"},"refill":null,"enforcement":"hard",'
    '"enforced_percent":100,"admission_open":true,"max_single":null,"min_ttl_s":null,"max_ttl_s":null,'
    '"max_overdraft":null,"parent":null,"guarantee":0,"generation":1}}'
)


def test_an_allocation_is_this_json() -> None:
    assert AS_JSON == encode_allocation(ALLOCATION).decode()
    assert ALLOCATION == decode_allocation(KEY, AS_JSON.encode())


def test_a_move_that_says_nothing_of_what_was_believed_is_read() -> None:
    before = AS_JSON.replace(',"believed":60', "").replace(',"believed":0', "")
    assert [0, 0] == [move.believed for move in decode_allocation(KEY, before.encode()).moves]


amounts = st.integers(0, MAX_AMOUNT)
limits = st.none() | st.builds(VersionedLimit, amount=st.none() | st.just(UNLIMITED) | amounts, version=amounts)
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
regions = names
moves = st.builds(
    Move,
    id=names,
    source=regions.map("from-{}".format),
    target=st.none() | regions,
    amount=st.integers(1, MAX_AMOUNT),
    requested_at=st.floats(0, 4e9),
    believed=amounts,
)
policies = st.builds(
    QuotaPolicy,
    calendar=st.builds(Calendar, st.sampled_from(Period), st.sampled_from(["UTC", "Asia/Kolkata"])),
    refill=st.none() | st.builds(Refill, *[st.integers(1, MAX_AMOUNT)] * 3),
    enforcement=st.sampled_from(Enforcement),
    enforced_percent=st.integers(0, 100),
    admission_open=st.booleans(),
    max_single=st.none() | st.integers(1, MAX_AMOUNT),
    min_ttl_s=st.none() | st.integers(1, 60),
    max_ttl_s=st.none() | st.integers(60, 3600),
    max_overdraft=st.none() | amounts,
    parent=st.none() | names,
    guarantee=amounts,
    normal_fill_percent=st.integers(50, 100),
    low_fill_percent=st.integers(0, 50),
    generation=st.integers(1, MAX_AMOUNT),
    regions=st.dictionaries(
        names,
        st.builds(RegionRules, st.none() | st.integers(0, MAX_WEIGHT), st.just(0), st.none() | amounts)
        | st.builds(RegionRules, floor=amounts),
        max_size=3,
    ),
)


@st.composite
def any_allocation(draw: st.DrawFn) -> Allocation:
    plan, override = draw(limits), draw(limits)
    words = [word.amount for word in (override, plan) if word is not None and word.amount is not None]
    effective = words[0] if words else 0
    limit = effective if isinstance(effective, int) else draw(amounts)
    slices = draw(st.dictionaries(regions, amounts, max_size=4))
    gone = st.builds(Retired, amounts, st.integers(0, 10**6))
    unproven = gone.map(lambda one: replace(one, unknown=one.units))
    retired = draw(st.dictionaries(regions, gone | unproven, max_size=2))
    return Allocation(
        kind=draw(st.sampled_from(Kind)),
        plan=plan,
        override=override,
        limit=limit,
        pool=limit - sum(gone.units for gone in retired.values()) - sum(slices.values()),
        retired=retired,
        slices=slices,
        moves=draw(st.lists(moves, max_size=3)),
        epoch=draw(st.integers(0, 10**6)),
        policy=draw(policies),
    )


@given(any_allocation())
def test_every_allocation_comes_back_exactly(allocation: Allocation) -> None:
    assert allocation == decode_allocation(KEY, encode_allocation(allocation))


def test_a_document_of_a_release_without_policies_has_the_default_one() -> None:
    fields = json.loads(AS_JSON)
    del fields["policy"]
    assert ALLOCATION == decode_allocation(KEY, json.dumps(fields).encode())


def test_rules_for_regions_are_this_json() -> None:
    rules = {"eu": RegionRules(300, 50, 200), "us": RegionRules(cap=0)}
    raw = encode_allocation(replace(ALLOCATION, policy=QuotaPolicy(regions=rules)))
    assert raw.endswith(b'"generation":1,"regions":{"eu":{"weight":300,"floor":50,"cap":200},"us":{"cap":0}}}}')
    assert rules == decode_allocation(KEY, raw).policy.regions


def test_percents_that_keep_something_for_higher_priorities_are_this_json() -> None:
    raw = encode_allocation(replace(ALLOCATION, policy=QuotaPolicy(low_fill_percent=80)))
    assert raw.endswith(b'"generation":1,"low_fill_percent":80}}')
    assert (100, 80) == (
        decode_allocation(KEY, raw).policy.normal_fill_percent,
        decode_allocation(KEY, raw).policy.low_fill_percent,
    )


def altered(**fields: Any) -> bytes:
    return json.dumps(json.loads(AS_JSON) | fields).encode()


def test_fields_of_a_later_release_are_passed_over() -> None:
    assert ALLOCATION == decode_allocation(KEY, altered(isolation={"policy": "refuse"}))


def test_order_and_white_space_do_not_matter() -> None:
    raw = json.dumps(json.loads(AS_JSON), sort_keys=True, indent=2).encode()
    assert ALLOCATION == decode_allocation(KEY, raw)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "object"),
        (b"{}", "missing required field"),
        (AS_JSON.encode().replace(b"m1", b"\xff"), "UTF-8"),
        (f'{AS_JSON[:-1]},"more":{"[" * 100_000}'.encode(), "recursion"),
        (altered(v=2), "it has format 2, this release reads up to 1"),
        (altered(v=0), "format 0"),
        (altered(limit=1000.0), "float"),
        (altered(pool="90"), "str"),
        (altered(kind="borrowed"), "borrowed"),
        (altered(slices={"eu": 1.5}), "float"),
        (altered(pool=91), "pool + retired + slices is 1001, the limit 1000"),
        (altered(slices={"eu": 901, "us": -1}), "Expected `int` >= 0"),
        (altered(slices={"eu\x00": 900}), "matching regex"),
        (altered(moves=[{"id": "\x00", "from": "eu", "to": "us", "amount": 1}]), "matching regex"),
        (altered(policy={"regions": {"eu": {"floor": 2, "cap": 1}}}), "floor 2 is above cap 1"),
        (altered(policy={"regions": {"eu": {"weight": -1}}}), "weight is -1"),
        (altered(policy={"regions": {"eu": {"floor": 2**63}}}), "out of range"),
        (altered(epoch=2**31), "Expected `int` <= 2147483647"),
        (altered(moves=[{"id": "m1", "from": "eu", "to": "eu", "amount": 1}]), "move m1"),
    ],
)
def test_what_cannot_be_read_says_where_and_why(raw: bytes, why: str) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        decode_allocation(KEY, raw)
    assert KEY.decode() in str(caught.value)
    assert why in str(caught.value)


def test_a_region_is_this_json() -> None:
    frozen, eviction = Frozen(FrozenBy.OPERATOR, 1.5, "moving house"), Eviction(2, 3.5, "powered off")
    record = RegionRecord("eu", 7, RegionStatus.DRAINING, frozen, eviction)
    raw = (
        b'{"v":1,"name":"eu","weight":7,"status":"draining",'
        b'"frozen":{"by":"operator","since":1.5,"why":"moving house"},'
        b'"eviction":{"number":2,"at":3.5,"attestation":"powered off","blind":false}}'
    )
    assert raw == encode_region(record)
    assert record == decode_region(b"regions/eu", raw)


def test_a_presence_is_this_json() -> None:
    presence = Presence("eu", "host-1", "http://host-1:8080", 17)
    raw = b'{"v":1,"region":"eu","instance":"host-1","url":"http://host-1:8080","synchronised":17}'
    assert raw == encode_presence(presence)
    assert presence == decode_presence(b"live/eu/host-1", raw)


DEMAND = Demand(
    QuotaKey("acme", "vcpu"),
    slice=10, used=7, reserved=1, granted=3, freed=1, denied=2, seconds=4.5, epoch=24_317, largest=2, at=NOON,
    denied_high=1, denied_low=1, expected=0.5, deviation=40.0,
)  # fmt: skip


def test_a_report_is_this_json() -> None:
    row = b'"acme","vcpu","global",10,7,1,3,1,2,4.5,24317,2,1,1,0.5,40.0'
    raw = b'{"v":1,"region":"eu","rows":[[' + row + b']],"at":1781524800.0}'
    assert [raw] == list(encode_report("eu", [DEMAND]))
    assert ("eu", [DEMAND]) == decode_report(b"demand/eu/host-1/0000", raw)


def test_columns_of_a_later_release_are_passed_over() -> None:
    row = b'"acme","vcpu","global",10,7,1,3,1,2,4.5,24317,2,1,1,0.5,40.0,"more"'
    raw = b'{"v":1,"region":"eu","rows":[[' + row + b']],"at":1781524800.0}'
    assert ("eu", [DEMAND]) == decode_report(b"demand/eu/host-1/0000", raw)


def test_columns_that_an_earlier_release_does_not_know_have_a_default() -> None:
    raw = b'{"v":1,"region":"eu","rows":[["acme","vcpu","global",10,7,1,3,1,2,4.5]]}'
    later = {"denied_high": 0, "denied_low": 0, "expected": 0.0, "deviation": 0.0}
    known = replace(DEMAND, epoch=0, largest=0, at=0.0, **later)
    assert ("eu", [known]) == decode_report(b"demand/eu/host-1/0000", raw)


def test_a_report_of_nothing_is_one_part() -> None:
    assert [("eu", [])] == [decode_report(b"", part) for part in encode_report("eu", [])]


def test_a_long_report_is_split_and_nothing_is_lost() -> None:
    words = [replace(DEMAND, key=QuotaKey("t" * 200, "r" * 200, str(number))) for number in range(6_000)]
    parts = list(encode_report("eu", words))
    assert 3 == len(parts)
    assert max(map(len, parts)) < LARGEST_REPORT + 100
    assert words == [word for part in parts for word in decode_report(b"", part)[1]]
