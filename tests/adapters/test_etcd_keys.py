import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionquota.adapters.etcd.keys import Keyspace
from regionquota.core.quota import QuotaKey

KEYS = Keyspace("/regionquota/")

characters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffd")
identifiers = st.text(characters, min_size=1, max_size=20)
quota_keys = st.builds(QuotaKey, identifiers, identifiers, identifiers)


def test_where_things_stand() -> None:
    assert b"/regionquota/alloc/aa/acme%20inc/gpu%2Fa100/global" == KEYS.allocation(QuotaKey("acme inc", "gpu/a100"))
    assert b"/regionquota/regions/eu-west" == KEYS.region("eu-west")
    assert b"/regionquota/live/eu/host%3A1" == KEYS.presence("eu", "host:1")
    assert b"/regionquota/demand/eu/host%3A1/0002" == KEYS.demand("eu", "host:1", 2)
    assert b"/regionquota/leader/coordinator" == KEYS.leader(0)
    assert b"/regionquota/leader/coordinator/7" == KEYS.leader(7)
    assert b"/regionquota/leader/present/host%2F1" == KEYS.coordinator("host/1")


@given(quota_keys)
def test_a_quota_is_read_back_from_its_key(key: QuotaKey) -> None:
    assert key == KEYS.quota_of(KEYS.allocation(key))


@given(quota_keys, quota_keys)
def test_different_quotas_have_different_keys(one: QuotaKey, other: QuotaKey) -> None:
    assert (one == other) == (KEYS.allocation(one) == KEYS.allocation(other))


@pytest.mark.parametrize(
    "raw",
    [
        b"/regionquota/alloc/",
        b"/regionquota/alloc/aa/acme%20inc/vcpu",
        b"/regionquota/alloc/aa/acme%20inc/vc%00pu/global",  # what Postgres cannot hold
        b"/regionquota/alloc/aa/acme%20inc//global",
        b"/regionquota/alloc/aa/acme%20inc/vcpu/global/more",
        b"/regionquota/alloc/00/acme%20inc/vcpu/global",  # another bucket
        b"/regionquota/alloc/aa/acme inc/vcpu/global",  # not encoded
        b"/regionquota/alloc/aa/acme%20inc/%FF/global",
        b"/regionquota/alloc/aa/\xff/vcpu/global",
        b"/elsewhere/alloc/aa/acme%20inc/vcpu/global",
    ],
)
def test_a_key_that_nobody_writes_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"not that of a quota|decode|no caller can name"):
        KEYS.quota_of(raw)
