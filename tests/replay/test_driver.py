import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from rich.console import Console

from regionquota.core.allocation import LimitSource, VersionedLimit, new_allocation
from regionquota.core.quota import Kind, QuotaKey
from regionquota.errors import InvalidRequest, Unavailable
from regionquota.replay import Faults, Partition, Proof, ReplayPlan, Sights, Targets, Trace, Window, replay
from regionquota.replay import progress as progress_module

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class World:
    """Two region servers over one exact counter, so whatever differs from the oracle was put there by a test."""

    etcd: Any
    key: QuotaKey
    limit: int = 0
    used: int = 0
    reservations: dict[str, str] = field(default_factory=dict)
    adjustments: set[str] = field(default_factory=set)
    admits_too_much: bool = False
    deny: Callable[[], bool] = lambda: False
    lose_answer: Callable[[str], bool] = lambda _: False
    """Of a call to this path, after doing what was asked."""
    refuse: Callable[[], int] = lambda: 0
    """A status to answer with instead of doing anything."""
    delay_s: Callable[[], float] = lambda: 0.0
    urls: dict[str, str] = field(default_factory=dict)

    @property
    def reserved(self) -> int:
        return sum(state == "PENDING" for state in self.reservations.values())

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_put("/v1/tenants/{tenant}/quotas/{resource}", self._mischief(self._set_limit))
        app.router.add_post("/v1/reservations", self._mischief(self._reserve))
        app.router.add_post("/v1/reservations/{id}/{event}", self._mischief(self._settle))
        app.router.add_post("/v1/adjustments", self._mischief(self._adjust))
        return app

    def _mischief(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(self.delay_s())
            if status := self.refuse():
                return web.json_response({"detail": "no"}, status=status, headers={"Retry-After": "0"})
            answer = await handler(request)
            if self.lose_answer(request.path) and request.transport is not None:
                request.transport.close()
            return answer

        return handle

    async def _set_limit(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert {"scope": "global", "source": "PLAN", "version": 1, "kind": "allocated"}.items() <= body.items()
        self.limit = body["limit"]
        limit = VersionedLimit(self.limit, 1)
        self.etcd.put(self.key, new_allocation(Kind.ALLOCATED, LimitSource.PLAN, limit))
        return web.json_response({})

    async def _reserve(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert (self.key.tenant, self.key.resource, 1) == (body["tenant_id"], body["resource"], body["amount"])
        reservation_id = "r/" + body["request_id"]
        if reservation_id not in self.reservations:
            full = self.used + self.reserved >= self.limit and not self.admits_too_much
            if full or self.deny():
                return web.json_response({"reason": "OVER_LIMIT"}, status=429)
            self.reservations[reservation_id] = "PENDING"
        return web.json_response({"reservation_id": reservation_id, "status": "PENDING"}, status=201)

    async def _settle(self, request: web.Request) -> web.Response:
        reservation_id, event = request.match_info["id"], request.match_info["event"]
        state = {"commit": "COMMITTED", "release": "RELEASED"}[event]
        known = self.reservations[reservation_id]
        late_commit = known == "EXPIRED" and event == "commit"
        if known not in {"PENDING", state} and not late_commit:
            return web.json_response({}, status=409)
        self.used += known != state and state == "COMMITTED"
        self.reservations[reservation_id] = state
        return web.json_response({})

    async def _adjust(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["request_id"] not in self.adjustments:
            assert 0 < -body["delta"] <= self.used
            self.adjustments.add(body["request_id"])
            self.used += body["delta"]
        return web.json_response({"used": self.used})


@pytest.fixture
async def world(etcd: Any, key: QuotaKey) -> AsyncIterator[World]:
    world = World(etcd, key)
    servers = {region: TestServer(world.app()) for region in ("eu", "us")}
    for region, server in servers.items():
        await server.start_server()
        world.urls[region] = str(server.make_url("/"))
    yield world
    for server in servers.values():
        await server.close()


def plan(bins: int = 3, per_bin: int = 30, **words: Any) -> ReplayPlan:
    trace = Trace(("eu", "us"), tuple((per_bin, per_bin) for _ in range(bins)))
    return ReplayPlan(
        trace, **{"run": "test", "bin_s": 0.1, "limit_factor": 3, "closing_s": 20, "patience_s": 9, **words}
    )


def every(nth: int) -> Callable[[], bool]:
    calls = iter(range(10**9))
    return lambda: next(calls) % nth == nth - 1


def during(first: int, last: int, then: Any) -> Callable[[], Any]:
    """`then` for the calls from `first` to `last`, by number."""
    calls = iter(range(10**9))
    return lambda: then if first <= next(calls) <= last else 0


async def test_demand_within_the_limit_is_admitted_and_all_given_back(world: World, sights: Sights) -> None:
    report = await replay(plan(), Targets(world.urls), sights)
    assert (180, 0, 0, 0) == (report.admitted, report.denied, report.failed, report.late)
    assert (180, 100.0, 0) == (report.oracle_admitted, report.admitted_of_oracle, report.false_denials)
    assert (0, 0) == (world.used, world.reserved)
    assert (180, 180, 0) == (world.limit, report.limit, report.overshoot)
    assert report.ok
    assert not report.partial
    assert "RELEASED" in world.reservations.values()


async def test_an_exact_server_agrees_with_the_oracle(world: World, sights: Sights) -> None:
    report = await replay(plan(bins=1, bin_s=0.5, limit=20, release_share=0), Targets(world.urls), sights)
    at_the_edge = 6  # units asked for when the first ones are just being given back
    assert 20 <= report.oracle_admitted <= 20 + at_the_edge
    assert abs(report.oracle_admitted - report.admitted) <= at_the_edge
    assert report.false_denials <= at_the_edge
    assert (0, 0, 0) == (world.used, world.reserved, report.overshoot)


async def test_a_denial_that_nothing_explains_is_a_false_one(world: World, sights: Sights) -> None:
    world.deny = every(10)
    report = await replay(plan(), Targets(world.urls), sights)
    assert (18, 18, 18) == (report.denied, report.false_denials, report.net_shortfall)
    assert report.false_denials == sum(region.false_denials for region in report.load.regions.values())


async def test_more_admitted_than_the_limit_is_an_overshoot(world: World, sights: Sights) -> None:
    world.admits_too_much = True
    report = await replay(plan(limit=10), Targets(world.urls), sights)
    assert report.overshoot > 10
    assert not report.ok
    assert Proof.HELD is report.observed.invariant_b


async def test_lost_answers_leak_nothing_and_raise_no_alarm(world: World, sights: Sights) -> None:
    fourth = every(4)
    world.lose_answer = lambda _: fourth()
    report = await replay(plan(limit_factor=1), Targets(world.urls), sights)
    assert (0, 0, 0) == (world.used, world.reserved, report.load.unreturned)
    assert report.load.failed_calls["reserve: connection lost"] > 0
    assert report.load.failed_calls["commit: connection lost"] > 0
    assert report.overshoot == 0


async def test_reserves_whose_answers_are_all_lost_are_found_and_released(world: World, sights: Sights) -> None:
    dice = random.Random(1)
    world.lose_answer = lambda path: path == "/v1/reservations" and dice.random() < 0.5
    report = await replay(plan(bins=1, closing_s=5), Targets(world.urls), sights)
    assert report.failed > 0
    assert (0, 0, 0) == (world.used, world.reserved, report.load.unreturned)


async def test_lost_holds_that_expired_meanwhile_are_no_leak(world: World, sights: Sights) -> None:
    def expire() -> None:
        world.lose_answer = lambda _: False
        world.reservations = dict.fromkeys(world.reservations, "EXPIRED")

    world.lose_answer = lambda path: path == "/v1/reservations"
    asyncio.get_running_loop().call_later(0.4, expire)
    report = await replay(plan(bins=1, connections=4), Targets(world.urls), sights)
    assert report.failed > 0
    assert 0 == report.load.unreturned


async def test_failures_are_no_denials(world: World, sights: Sights) -> None:
    world.urls["us"] = f"http://127.0.0.1:{unused_port()}"
    report = await replay(plan(), Targets(world.urls), sights)
    assert (90, 0) == (report.load.regions["us"].failed, report.denied)
    assert {"reserve: connection refused": 270} == report.load.failed_calls
    assert 90 == report.load.regions["eu"].admitted


async def test_a_server_that_is_away_for_a_while_is_asked_again(world: World, sights: Sights) -> None:
    world.refuse = during(50, 150, 503)
    report = await replay(plan(), Targets(world.urls), sights)
    assert report.load.failed_calls["reserve: http 503"] > 0
    assert (0, 0, 0) == (world.used, world.reserved, report.load.unreturned)
    assert 180 == report.admitted + report.denied + report.failed + report.late


async def test_a_refusal_for_good_is_not_repeated(world: World, sights: Sights) -> None:
    world.refuse = during(50, 80, 404)
    report = await replay(plan(release_share=0), Targets(world.urls), sights)
    assert report.failed == report.load.failed_calls["reserve: http 404"] > 0


async def test_a_call_without_an_answer_ends_by_its_timeout(world: World, sights: Sights) -> None:
    world.delay_s = during(50, 60, 1.0)
    report = await replay(plan(call_timeout_s=0.3), Targets(world.urls), sights)
    assert sum(count for what, count in report.load.failed_calls.items() if "timeout" in what) > 0
    assert (0, 0) == (world.used, world.reserved)


async def test_what_cannot_start_in_time_is_counted_as_late(world: World, sights: Sights) -> None:
    world.delay_s = lambda: 0.02
    report = await replay(plan(connections=1, patience_s=0.1), Targets(world.urls), sights)
    assert report.late > 50
    assert 180 == report.admitted + report.denied + report.failed + report.late
    assert (0, 0) == (world.used, world.reserved)


async def test_units_that_cannot_be_given_back_are_reported(world: World, sights: Sights) -> None:
    world.refuse = during(50, 10**9, 503)
    report = await replay(plan(bins=2, closing_s=0.2), Targets(world.urls), sights)
    assert report.load.unreturned >= world.used + world.reserved > 0


async def test_an_interrupt_gives_back_and_reports_in_part(world: World, sights: Sights) -> None:
    running = asyncio.create_task(replay(plan(bins=100), Targets(world.urls), sights))
    await asyncio.sleep(0.35)
    running.cancel()
    report = await running
    assert report.partial
    assert 0 < report.admitted < 400
    assert report.elapsed_s < 1
    assert (0, 0) == (world.used, world.reserved)


async def test_a_second_interrupt_ends_it_at_once(world: World, sights: Sights) -> None:
    running = asyncio.create_task(replay(plan(bins=100, closing_s=60), Targets(world.urls), sights))
    await asyncio.sleep(0.2)
    world.refuse = lambda: 503
    running.cancel()
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_without_any_server_it_does_not_start(world: World, sights: Sights) -> None:
    world.refuse = lambda: 503
    with pytest.raises(Unavailable, match="no region server took the quota: eu: http 503: no; us: http 503: no"):
        await replay(plan(), Targets(world.urls), sights)


async def test_a_plan_must_fit_what_there_is(world: World, sights: Sights) -> None:
    with pytest.raises(InvalidRequest, match="no URL for region us"):
        await replay(plan(), Targets({"eu": world.urls["eu"]}), sights)
    with pytest.raises(InvalidRequest, match="nothing here can cut off a region"):
        await replay(plan(etcd_outages=[Window(0, 1)]), Targets(world.urls), sights)


class Switches:
    def __init__(self) -> None:
        self.pulled: list[tuple[str, float]] = []
        self._begun = asyncio.get_running_loop().time()

    def pull(self, what: str) -> Callable[..., Awaitable[None]]:
        async def pulled(*regions: str) -> None:
            self.pulled.append((" ".join((what, *regions)), asyncio.get_running_loop().time() - self._begun))

        return pulled

    def faults(self) -> Faults:
        return Faults(self.pull("cut"), self.pull("heal"), self.pull("stop"), self.pull("start"))


async def test_partitions_and_outages_happen_at_their_times(world: World, sights: Sights) -> None:
    switches = Switches()
    broken = plan(partitions=[Partition("us", Window(0.05, 0.15))], etcd_outages=[Window(0.1, 0.25)])
    report = await replay(broken, Targets(world.urls), sights, faults=switches.faults())
    assert ["cut us", "stop", "heal us", "start"] == [what for what, _ in switches.pulled]
    assert all(at <= seconds for at, (_, seconds) in zip((0.05, 0.1, 0.15, 0.25), switches.pulled, strict=True))
    assert () == report.notes


async def test_what_is_broken_is_mended_at_the_end_and_what_was_not_is_left(world: World, sights: Sights) -> None:
    switches = Switches()
    broken = plan(bins=50, partitions=[Partition("us", Window(0.1, 99))], etcd_outages=[Window(3, 4)])
    running = asyncio.create_task(replay(broken, Targets(world.urls), sights, faults=switches.faults()))
    await asyncio.sleep(0.3)
    running.cancel()
    await running
    assert ["cut us", "heal us"] == [what for what, _ in switches.pulled]


async def test_a_fault_that_cannot_be_made_is_told(world: World, sights: Sights) -> None:
    async def fail(region: str) -> None:
        raise OSError("no control socket")

    switches = Switches()
    faults = Faults(fail, switches.pull("heal"), switches.pull("stop"), switches.pull("start"))
    broken = plan(partitions=[Partition("us", Window(0.1, 0.2))])
    report = await replay(broken, Targets(world.urls), sights, faults=faults)
    assert ("partition of us could not start: no control socket",) == report.notes


@pytest.mark.parametrize("terminal", [True, False])
async def test_people_see_how_far_it_is(
    world: World, sights: Sights, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    monkeypatch.setattr(progress_module, "LINE_S", 0.15)
    monkeypatch.setattr(progress_module, "BAR_S", 0.05)
    seen = io.StringIO()
    await replay(plan(), Targets(world.urls), sights, console=Console(file=seen, force_terminal=terminal, width=160))
    assert "admitted/s" in seen.getvalue()
    assert "slices 0 of 180, frozen: none" in seen.getvalue()


async def test_the_report_reads_as_tables_and_as_json(world: World, sights: Sights) -> None:
    world.deny = every(10)
    report = await replay(plan(bins=2), Targets(world.urls), sights)
    page = io.StringIO()
    Console(file=page, width=140).print(report)
    for label in ("admitted", "false denials", "overshoot", "invariant A", "invariant B", "hand-overs", "eu"):
        assert label in page.getvalue()
    told = json.loads(json.dumps(report.to_json()))
    assert told["admitted"] + told["denied"] == 120
    assert {"p50", "p95", "p99", "max"} == told["reserve_ms"].keys()
    assert ("held", "held", [], True) == (told["invariant_a"], told["invariant_b"], told["differences"], told["ok"])
    assert 12 == told["false_denials"] == sum(region["false_denials"] for region in told["regions"].values())
