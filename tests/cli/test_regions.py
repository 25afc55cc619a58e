"""What `regionquota region list` says of the coordinators."""

import pytest

from regionquota.cli.regions import who_leads
from regionquota.core.groups import GROUPS, Leader, Leadership


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
