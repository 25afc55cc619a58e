"""Why usage is what it is: the ledger over HTTP, and what keeps its house in a region server."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.http.harness import Api, Server, Start, until

from regionquota.config import LedgerConfig
from regionquota.errors import ConfigError
from regionquota.http.ledger_api import read_cursor, write_cursor
from regionquota.ledger_ports import LedgerPosition


async def ledger(api: Api, tenant: str, **query: Any) -> dict[str, Any]:
    asked = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
    reply = await api.get(f"/v1/tenants/{quote(tenant, safe='')}/ledger?{asked}")
    assert 200 == reply.status, reply
    return dict(reply.body)


async def settled(api: Api, tenant: str, *, lines: int) -> None:
    """Wait until what was written is shown: until no transaction that began before is under way anywhere."""

    async def shown() -> bool:
        return lines == len((await ledger(api, tenant))["entries"])

    await until(shown)


async def test_a_line_says_why_usage_changed(api: Api, quota: str) -> None:
    held = await api.hold(quota, 3, request_id="r")
    assert 200 == (await api.settle("commit", held)).status
    assert 200 == (await api.adjust(quota, -2, request_id="a", reason="deleted")).status
    await settled(api, quota, lines=2)
    page = await ledger(api, quota)
    assert (quota, "eu", False) == (page["tenant_id"], page["region"], page["more"])
    commit, adjust = page["entries"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", commit["at"])
    del commit["id"], commit["at"], adjust["id"], adjust["at"]
    same = {"resource": "vcpu", "scope": "global", "epoch": 0, "period": None}
    assert (
        same
        | {
            "kind": "commit",
            "delta": 3,
            "reservation_id": held,
            "request_id": commit["request_id"],
            "reason": commit["reason"],
        }
        == commit
    )
    assert same | {
        "kind": "adjust", "delta": -2, "reservation_id": None, "request_id": "a", "reason": "deleted"
    } == adjust  # fmt: skip


async def test_pages_are_followed_to_the_end_and_from_there_later(api: Api, quota: str) -> None:
    for delta in (1, 2, 3):
        await api.adjust(quota, delta)
    await settled(api, quota, lines=3)
    seen, more, after = [], True, {}
    while more:
        page = await ledger(api, quota, limit=2, **after)
        seen += [line["delta"] for line in page["entries"]]
        more, after = page["more"], {"after": page["next"]}
    assert [1, 2, 3] == seen
    await api.adjust(quota, -1)
    await settled(api, quota, lines=4)
    assert [-1] == [line["delta"] for line in (await ledger(api, quota, **after))["entries"]]


async def test_only_what_is_asked_for_is_shown(api: Api, quota: str) -> None:
    await api.set_limit(quota, 10, "disk")
    await api.adjust(quota, 1)
    await api.adjust(quota, 2, resource="disk")
    await settled(api, quota, lines=2)
    assert [2] == [line["delta"] for line in (await ledger(api, quota, resource="disk"))["entries"]]
    assert [] == (await ledger(api, quota, scope="nowhere"))["entries"]


async def test_a_consumable_line_says_its_period(api: Api, tenant: str) -> None:
    await api.set_limit(tenant, 10, "calls", kind="consumable", period="day", time_zone="Asia/Kolkata")
    assert 200 == (await api.adjust(tenant, 1, resource="calls")).status
    await settled(api, tenant, lines=1)
    ((line,)) = (await ledger(api, tenant))["entries"]
    assert ["18:30:00.000Z"] * 2 == [line["period"][end].partition("T")[2] for end in ("start", "end")]
    assert line["period"]["start"] <= line["at"] < line["period"]["end"]


async def test_a_tenant_without_lines_has_an_empty_page(api: Api, tenant: str) -> None:
    page = await ledger(api, tenant)
    assert ([], False) == (page["entries"], page["more"])
    assert [] == (await ledger(api, tenant, after=page["next"]))["entries"]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "1.5", "", "ten", "1e2", "9" * 40, "\u0661"])
async def test_a_limit_that_is_none_is_refused(api: Api, tenant: str, limit: str) -> None:
    reply = await api.get(f"/v1/tenants/{tenant}/ledger?limit={quote(limit)}")
    assert (400, "limit") == (reply.status, reply.body["field"])
    assert "an integer from 1 to 1000" in reply.body["detail"]


@pytest.mark.parametrize(
    "after",
    [
        "",
        "0",
        "%FF",
        "MS4y=",  # padded
        "MS4y\n",
        "!MS4y",
        write_cursor(LedgerPosition(1, 2))[:-1],
        write_cursor(LedgerPosition(2**64, 2)),
        write_cursor(LedgerPosition(1, 2**63)),
        "MDEuMg",  # 01.2
        "A" * 1000,
        "é",
    ],
)
async def test_a_cursor_that_is_none_is_refused(api: Api, tenant: str, after: str) -> None:
    reply = await api.get(f"/v1/tenants/{tenant}/ledger?after={quote(after)}")
    assert (400, "after") == (reply.status, reply.body["field"])
    assert "what next said" in reply.body["detail"]


@pytest.mark.parametrize("position", [LedgerPosition(), LedgerPosition(2**64 - 1, 2**63 - 1)])
async def test_a_cursor_is_read_as_it_was_written_and_may_be_anywhere(
    api: Api, tenant: str, position: LedgerPosition
) -> None:
    assert position == read_cursor(write_cursor(position))
    assert [] == (await ledger(api, tenant, after=write_cursor(position)))["entries"]


@pytest.mark.parametrize("query", ["resource=", "scope=%00"])
async def test_a_filter_that_is_no_identifier_is_refused(api: Api, tenant: str, query: str) -> None:
    reply = await api.get(f"/v1/tenants/{tenant}/ledger?{query}")
    assert (400, query.partition("=")[0]) == (reply.status, reply.body["field"])


# -- the house --


async def test_a_server_has_partitions_before_it_serves_and_says_so(server: Server) -> None:
    metrics = (await server.api.get("/metrics")).text
    assert 'regionquota_partitions_ahead_days{table="usage_ledger"} 14.0' in metrics
    assert 'regionquota_partitions_ahead_days{table="reservations"} 21.0' in metrics
    assert 'regionquota_default_partition_rows{table="usage_ledger"} 0.0' in metrics
    assert 0 == await server.look.fetchval("SELECT count(*) FROM usage_ledger_rest")


async def test_an_archive_that_is_no_directory_is_refused_at_the_start(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ledger\.archive_directory: .*gone is no directory"):
        await start(ledger=LedgerConfig(archive_directory=tmp_path / "gone"))
