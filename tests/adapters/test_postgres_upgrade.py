"""What an earlier version has written is there, and adds up, after the migrations that came later."""

from itertools import count

import pytest
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, differences

from regionquota.adapters.postgres import migrate as migrate_module
from regionquota.adapters.postgres.migrate import migrate, migrations
from regionquota.core.commands import Commit, Release, Settled
from regionquota.core.counter import Counter
from regionquota.core.policy import DEFAULT_POLICY
from regionquota.core.reservation import State
from regionquota.embedded import EmbeddedPostgres

server = fixtures.server

PENDING, COMMITTED = "019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-8000-000000000002"
OF_THE_FIRST_VERSION = f"""
INSERT INTO quota_counters VALUES ('acme', 'vcpu', 'global', 'allocated', 1000, 7, 0, 100, 65, 20, 15, 0, 0, 0);
INSERT INTO slice_ledger (at, tenant_id, resource, scope, revision, epoch, before, after)
VALUES (now(), 'acme', 'vcpu', 'global', 7, 0, 0, 100);
INSERT INTO reservations VALUES
    ('{PENDING}', 'acme', 'vcpu', 'global', 0, 'r1', '\\x01', 20, 'PENDING', now(), now() + interval '1 h', NULL, NULL),
    ('{COMMITTED}', 'acme', 'vcpu', 'global', 0, 'r2', '\\x02', 20, 'COMMITTED', now(), now(), 15, now());
INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reservation_id)
VALUES (now(), 'acme', 'vcpu', 'global', 0, 'commit', 15, '{COMMITTED}');
"""
_numbers = count(1)


@pytest.fixture
async def upgraded(server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch) -> str:
    """The DSN of a database that the first version has filled, and all migrations since."""
    name = f"upgraded{next(_numbers)}"
    await fixtures.query(server.dsn, f"CREATE DATABASE {name}")
    dsn = fixtures.dsn_of(server, name)
    first = [one for one in migrations() if one.version == 1]
    with monkeypatch.context() as earlier:
        earlier.setattr(migrate_module, "migrations", lambda: first)
        await migrate(dsn)
    for statement in OF_THE_FIRST_VERSION.split(";\n"):
        if statement.strip():
            await fixtures.query(dsn, statement)
    await migrate(dsn)
    return dsn


async def test_balances_holds_and_ledgers_outlive_an_upgrade(upgraded: str) -> None:
    async with fixtures.store_on(upgraded) as store:
        (holding,) = await store.holdings()
        assert (Counter(100, 65, 20, 15), DEFAULT_POLICY) == (holding.counter, holding.policy)
        assert [] == differences(await store.check_balances())
        known = await store.reservation_of_request("acme", "r2")
        assert known is not None
        assert (State.COMMITTED, 15, ()) == (known.state, known.actual, known.also)


async def test_a_hold_of_before_an_upgrade_is_settled_after_it(upgraded: str) -> None:
    async with fixtures.store_on(upgraded) as store:
        committed, released = await store.transact([Commit(PENDING, 12), Release(COMMITTED)], NOON)
        assert isinstance(committed, Settled)
        assert not isinstance(released, Settled)
        holding = await store.holding(QUOTA)
        assert holding is not None
        assert Counter(100, 73, 0, 27) == holding.counter
        assert [] == differences(await store.check_balances())
