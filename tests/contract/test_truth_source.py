"""What every `TruthSource` promises: in memory, over HTTP and as an SQL query."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from tests.contract import region_store_fixtures as fixtures
from tests.core.builders import NOON, OTHER, QUOTA
from tests.serving import serving

from regionquota.adapters.memory.truth import MemoryTruthSource
from regionquota.adapters.truth import checking, http_source
from regionquota.adapters.truth.http_source import HttpTruthSource
from regionquota.adapters.truth.sql_source import SqlTruthSource
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.embedded import EmbeddedPostgres
from regionquota.errors import SourceUnavailable
from regionquota.reconciling_ports import TruthSource

server = fixtures.server

RESOURCES = ["disk", "vcpu"]
MAY = (NOON - 1000.0, NOON)
GIVEN = (
    "SELECT tenant_id, resource, scope, total, snapshot_at FROM given"
    " WHERE (period_start, period_end) IS NOT DISTINCT FROM (NULL, NULL)"
)
GIVEN_IN_PERIOD = (
    "SELECT tenant_id, resource, scope, total, snapshot_at FROM given WHERE period_start = $1 AND period_end = $2"
)


TWO_INSTANTS = (
    "SELECT n::text AS tenant_id, 'vcpu' AS resource, 'global' AS scope, 1 AS total, "
    "now() + n * interval '1 s' AS snapshot_at FROM generate_series(1, 2) AS n"
)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@dataclass
class World:
    """Where it is known what is in use. `say` sets what a source answers."""

    source: TruthSource
    periods: TruthSource
    say: Callable[..., Awaitable[None]]


@pytest.fixture
def memory_world() -> World:
    source = MemoryTruthSource()

    async def say(units: dict[QuotaKey, int], at: float, period: tuple[float, float] | None = None) -> None:
        source.say(units, at, period)

    return World(source, source, say)


@dataclass
class Answers:
    """An HTTP server that answers as it is told."""

    url: str = ""
    status: int = 200
    bodies: dict[tuple[str | None, str | None], Any] = field(default_factory=dict)
    raw: bytes | None = None
    delay_s: float = 0.0
    asked: list[list[str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.query.getall("resource", []))
        await asyncio.sleep(self.delay_s)
        if self.raw is not None:
            return web.Response(status=self.status, body=self.raw)
        period = (request.query.get("period_start"), request.query.get("period_end"))
        return web.json_response(self.bodies[period], status=self.status)


@asynccontextmanager
async def answering() -> AsyncIterator[Answers]:
    answers = Answers()
    async with serving(answers.answer) as url:
        answers.url = f"{url}/totals"
        yield answers


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    async with answering() as started:
        yield started


def text(seconds: float) -> str:
    return moment(seconds).isoformat().replace("+00:00", "Z")


@pytest.fixture
def http_world(answers: Answers) -> World:
    async def say(units: dict[QuotaKey, int], at: float, period: tuple[float, float] | None = None) -> None:
        totals = [
            {"tenant_id": key.tenant, "resource": key.resource, "scope": key.scope, "total": total}
            for key, total in units.items()
        ]
        named = (None, None) if period is None else (text(period[0]), text(period[1]))
        answers.bodies[named] = {"snapshot_at": text(at), "totals": totals}

    source = HttpTruthSource(answers.url, deadline_s=5)
    return World(source, source, say)


def sql_source(dsn: str, query: str, deadline_s: float = 5) -> SqlTruthSource:
    return SqlTruthSource("counts", dsn, query, deadline_s=deadline_s, secret=lambda: None)


@pytest.fixture
async def given(server: EmbeddedPostgres) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection to a database with a table `given`."""
    conn = await asyncpg.connect(server.dsn)
    try:
        await conn.execute(
            "DROP TABLE IF EXISTS given; CREATE TABLE given (tenant_id text, resource text, scope text, total bigint, "
            "snapshot_at timestamptz, period_start timestamptz, period_end timestamptz)"
        )
        yield conn
    finally:
        await conn.close()


@pytest.fixture
def sql_world(server: EmbeddedPostgres, given: "asyncpg.Connection[asyncpg.Record]") -> World:
    async def say(units: dict[QuotaKey, int], at: float, period: tuple[float, float] | None = None) -> None:
        spans = (None, None) if period is None else (moment(period[0]), moment(period[1]))
        rows = [(key.tenant, key.resource, key.scope, total, moment(at), *spans) for key, total in units.items()]
        await given.executemany("INSERT INTO given VALUES ($1, $2, $3, $4, $5, $6, $7)", rows)

    return World(sql_source(server.dsn, GIVEN), sql_source(server.dsn, GIVEN_IN_PERIOD), say)


@pytest.fixture(params=["memory", "http", "sql"])
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.getfixturevalue(f"{request.param}_world")
    return chosen


# -- what all of them promise --


async def test_totals_are_those_of_the_snapshot(world: World) -> None:
    await world.say({QUOTA: 12, OTHER: MAX_AMOUNT}, NOON + 0.25)
    totals = await world.source.totals(RESOURCES)
    assert (NOON + 0.25, {QUOTA: 12, OTHER: MAX_AMOUNT}) == (totals.snapshot_at, totals.units)


async def test_scopes_are_counted_each_for_itself(world: World) -> None:
    project = QuotaKey("acme", "vcpu", "project:ü/1")
    await world.say({QUOTA: 12, project: 0}, NOON)
    assert {QUOTA: 12, project: 0} == (await world.source.totals(RESOURCES)).units


async def test_resources_that_were_not_asked_for_are_passed_over(world: World) -> None:
    await world.say({QUOTA: 12, OTHER: 5}, NOON)
    assert {QUOTA: 12} == (await world.source.totals(["vcpu"])).units


async def test_a_period_is_counted_for_itself(world: World) -> None:
    await world.say({QUOTA: 12}, NOON)
    await world.say({QUOTA: 700}, NOON + 5, MAY)
    totals = await world.periods.totals(RESOURCES, MAY)
    assert (NOON + 5, {QUOTA: 700}) == (totals.snapshot_at, totals.units)


# -- HTTP --


async def test_every_resource_is_named_in_the_request(answers: Answers, http_world: World) -> None:
    await http_world.say({}, NOON)
    await http_world.source.totals(["disk space", "vcpu"])
    assert [["disk space", "vcpu"]] == answers.asked


GOOD = b'{"snapshot_at": "2026-06-15T12:00:00Z", "totals": [%s]}'


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"<html>", "another form"),
        (b"[]", "another form"),
        (b'{"totals": []}', "snapshot_at"),
        (b'{"snapshot_at": "yesterday", "totals": []}', "snapshot_at"),
        (b'{"snapshot_at": "2026-06-15T12:00:00", "totals": []}', "snapshot_at"),
        (GOOD % b'{"tenant_id": "a", "resource": "vcpu"}', "total"),
        (GOOD % b'{"tenant_id": "a", "resource": "vcpu", "total": -1}', "total"),
        (GOOD % b'{"tenant_id": "a", "resource": "vcpu", "total": 1.5}', "total"),
        (GOOD % b'{"tenant_id": "a", "resource": "vcpu", "total": 9223372036854775808}', "total"),
        (GOOD % b'{"tenant_id": "", "resource": "vcpu", "total": 1}', "needs a tenant_id"),
        (
            GOOD
            % b'{"tenant_id": "a", "resource": "vcpu", "total": 1}, {"tenant_id": "a", "resource": "vcpu", "total": 2}',
            "names a/vcpu/global again",
        ),
    ],
)
async def test_an_answer_of_another_form_is_refused(answers: Answers, raw: bytes, message: str) -> None:
    answers.raw = raw
    with pytest.raises(SourceUnavailable, match=message):
        await HttpTruthSource(answers.url, deadline_s=5).totals(["vcpu"])


async def test_a_status_that_is_not_200_is_told_with_its_text(answers: Answers) -> None:
    answers.status, answers.raw = 500, b"out of order"
    with pytest.raises(SourceUnavailable, match="answered 500: out of order"):
        await HttpTruthSource(answers.url, deadline_s=5).totals(["vcpu"])


async def test_an_answer_that_takes_too_long_is_given_up(answers: Answers) -> None:
    answers.raw, answers.delay_s = GOOD % b"", 5
    with pytest.raises(SourceUnavailable, match=r"no answer within 0\.1 s"):
        await HttpTruthSource(answers.url, deadline_s=0.1).totals(["vcpu"])


async def test_an_answer_that_is_too_large_is_given_up(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_source, "MAX_ANSWER_BYTES", 1000)
    answers.raw = GOOD % (b" " * 2000)
    with pytest.raises(SourceUnavailable, match="more than 1000 bytes"):
        await HttpTruthSource(answers.url, deadline_s=5).totals(["vcpu"])


async def test_too_many_totals_are_refused(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_TOTALS", 1)
    one = b'{"tenant_id": "%s", "resource": "vcpu", "total": 1}'
    answers.raw = GOOD % b", ".join([one % b"a", one % b"b"])
    with pytest.raises(SourceUnavailable, match="more than 1 totals"):
        await HttpTruthSource(answers.url, deadline_s=5).totals(["vcpu"])


async def test_a_server_that_is_not_there_is_named_without_its_query() -> None:
    with pytest.raises(SourceUnavailable, match=r"http://127\.0\.0\.1:9/totals does not answer"):
        await HttpTruthSource("http://127.0.0.1:9/totals?key=hush", deadline_s=5).totals(["vcpu"])


# -- SQL --


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS total", "must return the columns"),
        ("SELECT nonsense", "failed: column"),
        ("SELECT 'a' AS tenant_id, 'vcpu' AS resource, 'global' AS scope, 1 AS total, now() AS snapshot_at WHERE false",
         "returned no row"),
        ("SELECT 'a' AS tenant_id, 'vcpu' AS resource, 'global' AS scope, 1.5 AS total, now() AS snapshot_at",
         "total must be an integer"),
        ("SELECT NULL AS tenant_id, 'vcpu' AS resource, 'global' AS scope, 1 AS total, now() AS snapshot_at",
         "needs a tenant_id"),
        ("SELECT 'a' AS tenant_id, 'vcpu' AS resource, 'global' AS scope, 1 AS total, localtimestamp AS snapshot_at",
         "one timestamptz"),
        (TWO_INSTANTS, "the same in each row"),
        ("SELECT $1::text AS tenant_id", "takes 1 parameters; it must take no parameter"),
        ("CREATE TABLE written (n integer)", "read-only"),
        ("DELETE FROM pg_description RETURNING 1", "read-only"),
    ],
)  # fmt: skip
async def test_a_query_of_another_form_is_refused(server: EmbeddedPostgres, query: str, message: str) -> None:
    with pytest.raises(SourceUnavailable, match=message):
        await sql_source(server.dsn, query).totals(["vcpu"])


async def test_a_query_that_takes_too_long_is_given_up(server: EmbeddedPostgres) -> None:
    slow = "SELECT pg_sleep(5)::text AS tenant_id"
    with pytest.raises(SourceUnavailable, match="statement timeout"):
        await sql_source(server.dsn, slow, deadline_s=0.2).totals(["vcpu"])


async def test_a_query_for_periods_may_take_the_start_alone(server: EmbeddedPostgres) -> None:
    query = (
        "SELECT 'acme' AS tenant_id, 'vcpu' AS resource, 'global' AS scope, "
        "extract(epoch FROM $1::timestamptz)::bigint AS total, now() AS snapshot_at"
    )
    assert {QUOTA: int(MAY[0])} == (await sql_source(server.dsn, query).totals(["vcpu"], MAY)).units


async def test_a_query_that_does_not_ask_for_the_period_is_refused(server: EmbeddedPostgres) -> None:
    with pytest.raises(SourceUnavailable, match="takes 0 parameters; it must take"):
        await sql_source(server.dsn, "SELECT now() AS snapshot_at").totals(["vcpu"], MAY)


async def test_a_database_that_is_not_there_is_told(server: EmbeddedPostgres) -> None:
    with pytest.raises(SourceUnavailable, match="the query of source counts failed"):
        await sql_source("postgresql://127.0.0.1:9/none", GIVEN).totals(["vcpu"])
