"""What the commands of `regionquota region` say of coordinators and regions."""

import pytest
from tests.core.builders import NOON

from regionquota.cli.regions import show, who_leads
from regionquota.core.groups import GROUPS, Leader, Leadership
from regionquota.ports import Frozen, FrozenBy, RegionRecord, RegionStatus


def leadership(present: str, **groups: range) -> Leadership:
    return Leadership(
        {group: Leader(name, 100 + group) for name, led in groups.items() for group in led}, present.split()
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (leadership(""), ["nobody leads groups 0-15"]),
        (leadership("one", one=range(GROUPS)), ["coordinator one: groups 0-15"]),
        (
            leadership("two one three", one=range(8), two=range(9, 16)),
            ["coordinator one: groups 0-7", "coordinator three: stands by", "coordinator two: groups 9-15",
             "nobody leads groups 8"],
        ),
        (leadership("new", old=range(1)), ["coordinator old of an older release leads everything"]),
    ],
)  # fmt: skip
def test_who_leads_is_said_in_a_line_each(found: Leadership, said: list[str]) -> None:
    assert said == list(who_leads(found))


@pytest.mark.parametrize(
    ("status", "frozen", "said"),
    [
        (RegionStatus.ACTIVE, False, "eu: weight 100, active\n"),
        (RegionStatus.DRAINING, False, "eu: weight 100, draining\n"),
        (RegionStatus.ACTIVE, True, "eu: weight 100, frozen since 2026-06-15T12:00:00.000Z by operator: night work\n"),
        (
            RegionStatus.DRAINING,
            True,
            "eu: weight 100, draining, frozen since 2026-06-15T12:00:00.000Z by operator: night work\n",
        ),
    ],
)
def test_a_region_is_told_with_all_that_holds_of_it(
    status: RegionStatus, frozen: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    since = Frozen(FrozenBy.OPERATOR, NOON, "night work") if frozen else None
    show(RegionRecord("eu", 100, status, since), json=False)
    assert said == capsys.readouterr().out
