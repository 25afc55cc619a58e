"""What is wrong with a call and can be known without a server is said at once, by the name of the argument."""

from datetime import UTC, datetime
from typing import Any

import pytest

from regionquota.client import Client, Hold, Reservation

NOBODY = "http://127.0.0.1:1"
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
HELD = Reservation("R1", "r1", "PENDING", "acme", "vcpu", "global", 4, NOON, NOON)
SETTLEMENTS: list[tuple[str, list[Any]]] = [
    ("start", ["vm-17"]),
    ("commit", []),
    ("commit", [3]),
    ("release", []),
    ("extend", [60]),
    ("status", []),
]


@pytest.mark.parametrize(("call", "others"), SETTLEMENTS)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("R1", "got str 'R1': an id alone does not do, find(tenant_id, request_id) answers the Reservation"),
        (None, "got None: give what reserve has answered, or find(tenant_id, request_id)"),
        (17, "got int 17: give what reserve has answered"),
    ],
)
async def test_a_settlement_takes_the_reservation_itself(call: str, others: list[Any], given: Any, says: str) -> None:
    async with Client(NOBODY) as client:
        with pytest.raises(TypeError) as wrong:
            await getattr(client, call)(given, *others)
    assert str(wrong.value).startswith("reservation must be a Reservation, ")
    assert says in str(wrong.value)


async def test_a_hold_around_work_is_no_reservation_but_has_one() -> None:
    async with Client(NOBODY) as client:
        hold: Any = Hold(client, HELD)
        with pytest.raises(TypeError, match=r"got Hold .*: give its \.reservation$"):
            await client.extend(hold, 60)


@pytest.mark.parametrize(
    ("call", "arguments", "says"),
    [
        ("reserve", [None, "vcpu", 1], "tenant_id must be a str, got None"),
        ("adjust", [7, "vcpu", 1], "tenant_id must be a str, got int 7"),
        ("find", [None, "r1"], "tenant_id must be a str, got None"),
        ("find", ["acme", HELD], "request_id must be a str, got Reservation"),
    ],
)
async def test_names_are_text(call: str, arguments: list[Any], says: str) -> None:
    how = {"reason": "deleted"} if call == "adjust" else {}
    async with Client(NOBODY) as client:
        with pytest.raises(TypeError) as wrong:
            await getattr(client, call)(*arguments, **how)
    assert says in str(wrong.value)


@pytest.mark.parametrize("wait_ms", ["5", 2.5, None])
async def test_time_to_wait_is_a_whole_number(wait_ms: Any) -> None:
    async with Client(NOBODY) as client:
        with pytest.raises(TypeError, match="wait_ms must be an int, got"):
            await client.reserve("acme", "vcpu", 1, wait_ms=wait_ms)


async def test_units_are_whole_numbers() -> None:
    wrong: Any = "3"
    async with Client(NOBODY) as client:
        with pytest.raises(TypeError, match="amount must be an int, got str '3'"):
            Hold(client, HELD).use(wrong)
        with pytest.raises(ValueError, match="amount must be 0 or more, got -1"):
            Hold(client, HELD).use(-1)
        with pytest.raises(TypeError, match="size must be an int, got str '3'"):
            async with client.block("acme", "vcpu", wrong):
                pass
        async with client.block("acme", "vcpu", 10) as block:
            with pytest.raises(TypeError, match="units must be an int, got str '3'"):
                await block.take(wrong)
            with pytest.raises(ValueError, match="units must be 1 or more, got 0"):
                await block.take(0)


@pytest.mark.parametrize("urls", [None, [None], 8080])
def test_servers_are_urls(urls: Any) -> None:
    with pytest.raises(TypeError, match="urls must"):
        Client(urls)
