"""What `HttpExecutor` asks an executor, and what it makes of the answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.core.builders import NOON, QUOTA, reservation_name
from tests.serving import serving

from regionquota.adapters.executor import HttpExecutor
from regionquota.adapters.executor.client import MAX_ANSWER_BYTES
from regionquota.core.periods import TIMELESS
from regionquota.core.reservation import Reservation, State
from regionquota.errors import ExecutorUnavailable
from regionquota.executor_ports import Finding, Verdict

ONE, TWO = reservation_name(1), reservation_name(2)


def started(name: str, amount: int = 5) -> Reservation:
    return Reservation(
        id=name,
        key=QUOTA,
        epoch=TIMELESS,
        request_id="r",
        digest=b"d",
        amount=amount,
        state=State.UNKNOWN,
        created_at=NOON,
        expires_at=NOON + 60,
        operation_id=f"operation of {name}",
    )


@dataclass
class Scripted:
    """An executor that answers what a test says."""

    answer: Callable[[], Awaitable[web.StreamResponse]]
    asked: list[Any] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        return await self.answer()

    def says(self, text: str, status: int = 200) -> None:
        async def answer() -> web.StreamResponse:
            return web.Response(text=text, status=status, content_type="application/json")

        self.answer = answer

    def knows(self, *outcomes: object) -> None:
        self.says(json.dumps({"outcomes": outcomes}))


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    async def nothing() -> web.StreamResponse:
        return web.json_response({"outcomes": []})

    one = Scripted(nothing)
    async with serving(one.handle) as url:
        one.url = f"{url}/outcomes"
        yield one


@pytest.fixture
async def executor(scripted: Scripted) -> AsyncIterator[HttpExecutor]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(HttpExecutor(scripted.url, timeout_s=0.5))


async def test_a_question_names_all_that_identifies_the_work(scripted: Scripted, executor: HttpExecutor) -> None:
    await executor.ask([started(ONE)])
    assert [
        {
            "reservations": [
                {
                    "reservation_id": ONE,
                    "operation_id": f"operation of {ONE}",
                    "request_id": "r",
                    "tenant_id": "acme",
                    "resource": "vcpu",
                    "scope": "global",
                    "amount": 5,
                    "created_at": "2026-06-15T12:00:00.000Z",
                    "deadline": "2026-06-15T12:01:00.000Z",
                }
            ]
        }
    ] == scripted.asked


@pytest.mark.parametrize(
    ("said", "finding"),
    [
        ({"outcome": "committed", "actual_amount": 3}, Finding(ONE, Verdict.COMMITTED, 3)),
        ({"outcome": "committed"}, Finding(ONE, Verdict.COMMITTED)),
        ({"outcome": "released"}, Finding(ONE, Verdict.RELEASED)),
        ({"outcome": "running"}, Finding(ONE, Verdict.RUNNING)),
        ({"outcome": "unknown"}, Finding(ONE, Verdict.UNKNOWN)),
        ({"outcome": "released", "note": "a field of later days"}, Finding(ONE, Verdict.RELEASED)),
    ],
)
async def test_an_outcome_is_understood(
    scripted: Scripted, executor: HttpExecutor, said: dict[str, Any], finding: Finding
) -> None:
    scripted.knows({"reservation_id": ONE} | said)
    assert [finding] == list(await executor.ask([started(ONE)]))


@pytest.mark.parametrize(
    "malformed",
    [
        {"reservation_id": ONE},
        {"outcome": "committed"},
        {"reservation_id": ONE, "outcome": "done"},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": 0},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": -1},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": 1.5},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": "3"},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": True},
        {"reservation_id": ONE, "outcome": "committed", "actual_amount": 2**63},
        {"reservation_id": ONE, "outcome": "released", "actual_amount": 3},
        {"reservation_id": 1, "outcome": "released"},
        {"reservation_id": "another", "outcome": "released"},
        7,
        None,
        [],
    ],
)
async def test_a_malformed_outcome_finds_nothing_and_keeps_no_other_from_it(
    scripted: Scripted, executor: HttpExecutor, malformed: object
) -> None:
    scripted.knows(malformed, {"reservation_id": TWO, "outcome": "released"})
    assert [Finding(TWO, Verdict.RELEASED)] == list(await executor.ask([started(ONE), started(TWO)]))


async def test_of_two_answers_to_one_question_neither_is_believed(scripted: Scripted, executor: HttpExecutor) -> None:
    scripted.knows({"reservation_id": ONE, "outcome": "released"}, {"reservation_id": ONE, "outcome": "committed"})
    assert [] == list(await executor.ask([started(ONE)]))


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"outcomes": 1}', "<html>", "[" * 10_000, '{"outcomes": ['])
async def test_an_answer_that_cannot_be_read_is_none(scripted: Scripted, executor: HttpExecutor, text: str) -> None:
    scripted.says(text)
    with pytest.raises(ExecutorUnavailable):
        await executor.ask([started(ONE)])


@pytest.mark.parametrize("status", [201, 302, 400, 500])
async def test_another_status_is_no_answer(scripted: Scripted, executor: HttpExecutor, status: int) -> None:
    scripted.says('{"outcomes": []}', status)
    with pytest.raises(ExecutorUnavailable, match=str(status)):
        await executor.ask([started(ONE)])


async def test_an_answer_of_any_size_is_not_read_to_its_end(scripted: Scripted, executor: HttpExecutor) -> None:
    scripted.says(" " * (MAX_ANSWER_BYTES + 1))
    with pytest.raises(ExecutorUnavailable, match=str(MAX_ANSWER_BYTES)):
        await executor.ask([started(ONE)])


async def test_an_executor_that_hangs_is_given_up(scripted: Scripted, executor: HttpExecutor) -> None:
    async def hang() -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("never")

    scripted.answer = hang
    with pytest.raises(ExecutorUnavailable, match="does not answer"):
        await executor.ask([started(ONE)])


async def test_an_executor_that_is_not_there_is_no_answer() -> None:
    async with HttpExecutor("http://127.0.0.1:1/outcomes", timeout_s=0.5) as nobody:
        with pytest.raises(ExecutorUnavailable, match="does not answer"):
            await nobody.ask([started(ONE)])
