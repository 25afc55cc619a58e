"""The usage ledger on the command line, against a running deployment."""

import csv
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.end_to_end.support import Deployment, run

from regionquota.cli.ledger import CLOSING_S, MAX_DAYS, _days
from regionquota.errors import InvalidRequest

TODAY = datetime.now(UTC).date()
DAY = timedelta(days=1)
SPAN = ("--from", str(TODAY - 3 * DAY), "--to", str(TODAY - DAY))


def contents(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


async def past(
    deployment: Deployment, region: str, tenant: str, *deltas: int, day: date = TODAY - 2 * DAY, kind: str = "commit"
) -> None:
    """Lines as they would have been written on `day`."""
    database = await asyncpg.connect(deployment.config.deployment.regions[region].dsn)
    try:
        await database.executemany(
            "INSERT INTO usage_ledger (at, tenant_id, resource, scope, epoch, kind, delta, reason) "
            "VALUES ($1, $2, 'vcpu', 'global', 0, $4, $3, 'a, \"b\"')",
            [(datetime(day.year, day.month, day.day, 12, tzinfo=UTC), tenant, delta, kind) for delta in deltas],
        )
    finally:
        await database.close()


async def exported(deployment: Deployment, tenant: str, *more: str) -> str:
    status, said, error = await run("ledger", "export", *SPAN, "--tenant", tenant, *more, config=deployment.file)
    assert 0 == status, error
    return said


async def test_whole_days_of_all_regions_are_exported_as_csv(deployment: Deployment, tenant: str) -> None:
    await past(deployment, "eu", tenant, 1, 2)
    await past(deployment, "us", tenant, 3, day=TODAY - 3 * DAY)
    await past(deployment, "us", tenant, 4, day=TODAY - DAY)  # the end does not belong to it
    await past(deployment, "us", tenant, 5, day=TODAY - 4 * DAY)
    found = list(csv.DictReader((await exported(deployment, tenant)).splitlines()))
    assert [("eu", "1"), ("eu", "2"), ("us", "3")] == [(line["region"], line["delta"]) for line in found]
    assert 'a, "b"' == found[0]["reason"]
    assert f"{TODAY - 2 * DAY}T12:00:00.000000Z" == found[0]["at"]


async def test_one_region_is_exported_as_json_lines(deployment: Deployment, tenant: str) -> None:
    await past(deployment, "eu", tenant, 1)
    await past(deployment, "us", tenant, 2)
    (line,) = map(json.loads, (await exported(deployment, tenant, "--format", "jsonl", "--region", "us")).splitlines())
    assert ("us", tenant, 2, None) == (line["region"], line["tenant_id"], line["delta"], line["reservation_id"])


async def test_a_file_takes_its_place_when_it_is_whole(deployment: Deployment, tenant: str, tmp_path: Path) -> None:
    await past(deployment, "eu", tenant, *range(1, 6))
    output = tmp_path / "usage.csv"
    output.write_text("last month's", encoding="utf-8")
    assert "" == await exported(deployment, tenant, "--output", str(output))
    assert {"usage.csv": 6} == {name: len(text.splitlines()) for name, text in contents(tmp_path).items()}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
async def test_a_summary_adds_up_over_days_and_regions(deployment: Deployment, tenant: str, form: str) -> None:
    await past(deployment, "eu", tenant, 1, 2)
    await past(deployment, "us", tenant, 4, day=TODAY - 3 * DAY)
    await past(deployment, "us", tenant, 2**63 - 1, kind="meter")
    await past(deployment, "ap", tenant, 2**63 - 1, kind="meter")
    said = (await exported(deployment, tenant, "--summary", "--format", form)).splitlines()
    found: list[Any] = list(csv.DictReader(said)) if form == "csv" else [json.loads(line) for line in said]
    assert [("commit", 3, 7), ("meter", 2, 2 * (2**63 - 1))] == [
        (one["kind"], int(one["lines"]), int(one["delta"])) for one in found
    ]


async def test_the_newest_lines_are_listed_last(deployment: Deployment, tenant: str) -> None:
    await past(deployment, "us", tenant, 5)
    await past(deployment, "eu", tenant, 3, 4, day=TODAY - 3 * DAY)
    status, said, error = await run("ledger", "list", tenant, "-n", "2", "--json", config=deployment.file)
    assert 0 == status, error
    assert [4, 5] == [line["delta"] for line in json.loads(said)]
    status, said, _ = await run("ledger", "list", tenant, config=deployment.file)
    assert (0, 3) == (status, said.count("commit"))


async def test_an_export_that_lacks_dropped_days_fails(deployment: Deployment, tenant: str) -> None:
    dsn = deployment.config.deployment.regions["ap"].dsn
    database = await asyncpg.connect(dsn)
    try:
        await database.execute("INSERT INTO usage_openings VALUES ($1, 'vcpu', 'global', 0, 0, 0, 0)", tenant)
        status, said, error = await run("ledger", "export", *SPAN, config=deployment.file)
        await database.execute("DELETE FROM usage_openings WHERE tenant_id = $1", tenant)
    finally:
        await database.close()
    assert (1, "") == (status, said)
    assert "ap keeps the ledger since" in error


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--from", str(TODAY), "--to", str(TODAY + DAY)], 2, "the day that is under way"),
        (["--from", str(TODAY), "--to", str(TODAY)], 2, "--to must be after --from"),
        (["--from", str(TODAY - (MAX_DAYS + 1) * DAY), "--to", str(TODAY)], 2, f"at most {MAX_DAYS} days"),
        (["--from", "yesterday", "--to", str(TODAY)], 2, "yesterday"),
        ([*SPAN, "--region", "mars"], 2, 'unknown region "mars": known are ap, eu, us'),
        ([*SPAN, "--tenant", ""], 2, "tenant must be"),
        ([*SPAN, "--format", "xml"], 2, "xml"),
        ([*SPAN, "--output", "/nowhere/usage.csv"], 1, "cannot write /nowhere/usage.csv: No such file"),
    ],
)
async def test_what_cannot_be_exported_is_answered_in_one_line(
    deployment: Deployment, arguments: list[str], status: int, says: str
) -> None:
    got, said, error = await run("ledger", "export", *arguments, config=deployment.file)
    assert (status, "") == (got, said)
    assert says in error
    assert "Traceback" not in error


def test_a_day_that_has_just_ended_waits_until_nobody_can_be_writing_to_it() -> None:
    midnight = datetime(2026, 6, 16, tzinfo=UTC)
    yesterday, today = date(2026, 6, 15), date(2026, 6, 16)
    with pytest.raises(InvalidRequest, match="has ended just now"):
        _days(yesterday, today, midnight + timedelta(seconds=CLOSING_S - 1))
    assert [yesterday] == _days(yesterday, today, midnight + timedelta(seconds=CLOSING_S))
