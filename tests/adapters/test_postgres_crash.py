"""Postgres ends in the middle of everything: every caller is answered, and nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from tests.clocks import Clock
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, QUOTA, adjust, allocation, differences, reservation_name, reserve

from regionquota.adapters.postgres.transaction import Deadlines
from regionquota.core.commands import Adjusted, Command, Commit, Granted, Outcome, Release, Settled
from regionquota.core.counter import Counter
from regionquota.embedded import EmbeddedPostgres
from regionquota.errors import OutcomeUnknown, StoreUnavailable
from regionquota.ports import RegionStore
from regionquota.region.group_commit import GroupCommit

server, migrated_database, database = fixtures.server, fixtures.migrated_database, fixtures.database
open_store = fixtures.open_store

SLICE = 10**6
HASTY = Deadlines(acquire=5, connect=5, statement=5, lock=5, idle_in_transaction=5)
ONE, TWO = reservation_name(1), reservation_name(2)

Submit = Callable[[Command], Awaitable[Outcome]]


@asynccontextmanager
async def lanes_on(store: RegionStore, lanes: int = 4) -> AsyncIterator[Submit]:
    group = GroupCommit(store, Clock(NOON), lanes=lanes, max_batch=50, max_queue=1000)
    group.start()

    async def submit(command: Command) -> Outcome:
        return await group.submit(command, hash(repr(command)))

    yield submit
    await group.stop()


async def counter(store: RegionStore) -> Counter:
    held = await store.holding(QUOTA)
    assert held is not None
    return held.counter


async def test_after_a_crash_in_mid_load_everybody_is_answered_and_nothing_is_done_twice(
    database: str, server: EmbeddedPostgres
) -> None:
    answered = unanswered = 0
    half_way = asyncio.Event()

    async def again_and_again(submit: Submit, command: Command) -> Outcome:
        """As a client does that is told to try again: with the same id."""
        nonlocal answered, unanswered
        while True:
            try:
                outcome = await submit(command)
            except StoreUnavailable:
                unanswered += 1
                await asyncio.sleep(0.02)
                continue
            answered += 1
            if answered > 20 * 15:
                half_way.set()
            return outcome

    async def client(submit: Submit, n: int) -> None:
        for m in range(15):
            name = reservation_name(n * 100 + m)
            assert isinstance(await again_and_again(submit, reserve(3, name=name)), Granted)
            assert isinstance(await again_and_again(submit, Commit(name, 2) if m % 2 else Release(name)), Settled)
            assert isinstance(await again_and_again(submit, adjust(1, request=name)), Adjusted)

    async with fixtures.store_on(database, deadlines=HASTY) as store:
        await store.apply(QUOTA, allocation(SLICE, eu=SLICE), 10, NOON)
        async with lanes_on(store) as submit:
            clients = [asyncio.create_task(client(submit, n)) for n in range(20)]
            await half_way.wait()
            await server.kill()
            await server.start()
            async with asyncio.timeout(60):
                await asyncio.gather(*clients)
        assert unanswered > 0
        used = 20 * (15 + 7 * 2)
        assert Counter(slice=SLICE, available=SLICE - used, used=used) == await counter(store)
        assert [] == differences(await store.check_balances())
        assert 20 * (15 + 7) == await fixtures.query(database, "SELECT count(*) FROM usage_ledger")


ROWS = b'[{"'
"""How what is to be written begins; what is only looked up is asked for in another way."""


class CommitCutter:
    """A proxy to Postgres that breaks a connection at COMMIT, or at a statement that is a transaction of its own:
    before it is forwarded, or before its answer is.
    """

    def __init__(self, database: str) -> None:
        self._target = urlsplit(database)
        self._database = database
        self.cuts_left = 0
        self.forward = True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            yield self._database.replace(f":{self._target.port}/", f":{port}/")

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        postgres, to_postgres = await asyncio.open_connection("127.0.0.1", self._target.port)
        answers = asyncio.create_task(self._pass_on(postgres, to_client))
        in_transaction = False
        try:
            while data := await client.read(65536):
                in_transaction = in_transaction or b"BEGIN;" in data
                writes = ROWS in data and not in_transaction
                if self.cuts_left and (writes or b"COMMIT;" in data):
                    self.cuts_left -= 1
                    answers.cancel()
                    await asyncio.wait([answers])
                    if self.forward:
                        to_postgres.write(data)
                        await postgres.read(1)  # it is done
                    return
                to_postgres.write(data)
                in_transaction = in_transaction and b"COMMIT;" not in data and b"ROLLBACK;" not in data
        except ConnectionError:
            pass
        finally:
            answers.cancel()
            to_postgres.close()
            to_client.close()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except ConnectionError:
            pass
        sink.close()


@pytest.fixture
async def cutter(database: str) -> CommitCutter:
    return CommitCutter(database)


COMMANDS = pytest.mark.parametrize(
    ("command", "expected", "balances"),
    [
        (reserve(30, name=reservation_name(2)), Granted, (50, 0, 50)),
        (Commit(ONE, 15), Settled, (85, 15, 0)),
        (Release(ONE), Settled, (100, 0, 0)),
        (adjust(25, request="x"), Adjusted, (55, 25, 20)),
    ],
    ids=["reserve", "commit", "release", "adjust"],
)


@COMMANDS
@pytest.mark.parametrize("forward", [True, False], ids=["done", "not done"])
async def test_a_connection_that_breaks_at_commit_costs_nobody_the_true_outcome(
    cutter: CommitCutter, command: Command, expected: type, balances: tuple[int, int, int], forward: bool
) -> None:
    async with cutter.listening() as dsn, fixtures.store_on(dsn) as store:
        await store.apply(QUOTA, allocation(SLICE, eu=100), 10, NOON)
        await store.transact([reserve(20, name=ONE)], NOON)
        cutter.cuts_left, cutter.forward = 1, forward
        async with lanes_on(store, lanes=1) as submit:
            outcome = await submit(command)
        assert isinstance(outcome, expected)
        assert forward is outcome.replayed  # type: ignore[attr-defined]
        held = await counter(store)
        assert balances == (held.available, held.used, held.reserved)
        assert [] == differences(await store.check_balances())


@pytest.mark.parametrize("forward", [True, False], ids=["done", "not done"])
async def test_the_store_says_that_the_outcome_is_unknown(cutter: CommitCutter, forward: bool) -> None:
    async with cutter.listening() as dsn, fixtures.store_on(dsn) as store:
        await store.apply(QUOTA, allocation(SLICE, eu=100), 10, NOON)
        cutter.cuts_left, cutter.forward = 1, forward
        with pytest.raises(OutcomeUnknown, match="the connection broke at COMMIT"):
            await store.transact([adjust(20, request="x")], NOON)
        assert (20 if forward else 0) == (await counter(store)).used


@pytest.mark.parametrize("forward", [True, False], ids=["done", "not done"])
async def test_the_store_says_so_of_a_statement_that_is_a_transaction_of_its_own(
    cutter: CommitCutter, forward: bool
) -> None:
    async with cutter.listening() as dsn, fixtures.store_on(dsn) as store:
        await store.apply(QUOTA, allocation(SLICE, eu=100), 10, NOON)
        await store.transact([reserve(20, name=ONE)], NOON)
        cutter.cuts_left, cutter.forward = 1, forward
        with pytest.raises(OutcomeUnknown, match="the connection broke in mid-statement"):
            await store.transact([reserve(20, name=TWO)], NOON)
        assert forward is (await store.reservation(TWO) is not None)
        assert (40 if forward else 20) == (await counter(store)).reserved


async def test_an_apply_whose_commit_was_not_answered_may_be_repeated(cutter: CommitCutter) -> None:
    async with cutter.listening() as dsn, fixtures.store_on(dsn) as store:
        document = allocation(SLICE, eu=100)
        cutter.cuts_left = 1
        with pytest.raises(OutcomeUnknown):
            await store.apply(QUOTA, document, 10, NOON)
        held = await store.apply(QUOTA, document, 10, NOON)
        assert held is not None
        assert (100, 1) == (held.slice, len(await store.slice_history(0, 10)))


async def test_a_connection_that_breaks_at_every_commit_is_answered_with_what_is_known(cutter: CommitCutter) -> None:
    async with cutter.listening() as dsn, fixtures.store_on(dsn) as store:
        await store.apply(QUOTA, allocation(SLICE, eu=100), 10, NOON)
        cutter.cuts_left, cutter.forward = 100, False
        async with lanes_on(store, lanes=1) as submit:
            with pytest.raises(StoreUnavailable):
                await submit(reserve(20, name=ONE))
        cutter.cuts_left = 0
        assert 0 == (await counter(store)).reserved
