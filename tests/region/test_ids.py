import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import NOON

from regionquota.core.quota import bucket_of
from regionquota.region.ids import bucket_of_id, reservation_id

randomness = st.integers(0, 2**66 - 1)


@given(tenant=st.text(max_size=20), now=st.floats(0, 10**10), bits=randomness)
def test_every_id_is_a_uuid_of_version_7_that_knows_its_bucket(tenant: str, now: float, bits: int) -> None:
    name = reservation_id(tenant, now, bits)
    parsed = uuid.UUID(name)
    assert (7, uuid.RFC_4122) == (parsed.version, parsed.variant)
    assert bucket_of(tenant) == bucket_of_id(name)
    assert int(now * 1000) == parsed.int >> 80


@given(one=randomness, other=randomness)
def test_different_randomness_makes_different_ids(one: int, other: int) -> None:
    assert (one == other) == (reservation_id("acme", NOON, one) == reservation_id("acme", NOON, other))


@given(one=st.integers(0, 10**12), later=st.integers(1, 10**6), bits=st.tuples(randomness, randomness))
def test_ids_sort_by_time(one: int, later: int, bits: tuple[int, int]) -> None:
    assert reservation_id("acme", one / 1000, bits[0]) < reservation_id("acme", (one + later + 1) / 1000, bits[1])


OURS = reservation_id("acme", NOON, 12345)


@pytest.mark.parametrize(
    "foreign",
    ["", "x", "no-uuid-at-all", str(uuid.UUID(int=0)), "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "0" * 36, OURS + "0"],
)
def test_what_is_none_of_ours_has_no_bucket(foreign: str) -> None:
    assert bucket_of_id(foreign) is None


@pytest.mark.parametrize(
    "spelling", [OURS.upper(), OURS.replace("-", ""), f"{{{OURS}}}", f"urn:uuid:{OURS}", OURS.replace("0", "\u0660", 1)]
)
def test_an_id_has_one_spelling(spelling: str) -> None:
    """The store compares text: another spelling of a known id must not be looked up at all."""
    assert spelling != OURS
    assert bucket_of_id(spelling) is None
