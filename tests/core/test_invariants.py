from dataclasses import replace
from random import Random

import pytest
from tests.core.builders import QUOTA, allocation, move
from tests.explorer.worlds import Histories, explored

from regionquota.core.allocation import Allocation
from regionquota.core.invariants import SliceChange, check_slices
from regionquota.core.quota import Region

SEEDS = range(12)


def changed(revision: int, before: int, after: int, region: Region = "eu") -> SliceChange:
    return SliceChange(QUOTA, region, revision, before, after)


def handed_over() -> list[tuple[int, Allocation]]:
    """The life of a move of 40 units from eu to us."""
    return [
        (10, allocation(300, eu=300)),
        (11, allocation(300, eu=300, moves=[move("eu", "us", 40)])),
        (12, allocation(300, eu=260, us=40)),
    ]


def honest_rows() -> dict[Region, list[SliceChange]]:
    return {"eu": [changed(10, 0, 300), changed(11, 300, 260)], "us": [changed(12, 0, 40, "us")]}


def test_a_move_that_was_made_in_the_right_order_is_accepted() -> None:
    proof = check_slices(handed_over(), honest_rows())
    assert (3, 300, ()) == (proof.revisions, proof.largest_sum, proof.differences)


def test_a_donor_that_decreased_after_it_had_handed_over_is_caught() -> None:
    late = honest_rows() | {"eu": [changed(10, 0, 300), changed(12, 300, 260)]}
    proof = check_slices(handed_over(), late)
    assert ("acme/vcpu/global: eu held 300 at revision 12, where it owned 260",) == proof.differences
    assert 340 == proof.largest_sum


def test_a_receiver_that_increased_before_it_owned_is_caught() -> None:
    early = honest_rows() | {"us": [changed(11, 0, 40, "us")]}
    assert 1 == len(check_slices(handed_over(), early).differences)


def test_a_slice_that_was_never_given_up_is_caught() -> None:
    kept = honest_rows() | {"eu": [changed(10, 0, 300)]}
    assert 1 == len(check_slices(handed_over(), kept).differences)


def test_a_region_that_went_back_to_an_older_revision_is_caught_although_it_came_forth_again() -> None:
    rows = [changed(10, 0, 300), changed(11, 300, 260), changed(10, 260, 300), changed(11, 300, 260)]
    proof = check_slices(handed_over(), honest_rows() | {"eu": rows})
    assert ("acme/vcpu/global: eu went back from revision 11 to 10",) == proof.differences


def test_a_row_that_is_missing_is_caught() -> None:
    rows = [changed(10, 0, 300), changed(11, 260, 250)]
    proof = check_slices(handed_over(), honest_rows() | {"eu": rows})
    assert ("acme/vcpu/global: eu held 300 after revision 10, but 260 before revision 11",) == proof.differences


def test_nothing_at_all_is_no_violation() -> None:
    assert () == check_slices([], {"eu": []}).differences


def test_a_history_that_begins_later_is_checked_from_there() -> None:
    proof = check_slices(handed_over()[1:], {"eu": [changed(11, 300, 260)], "us": [changed(12, 0, 40, "us")]})
    assert () == proof.differences


@pytest.fixture(scope="module")
def worlds() -> list[Histories]:
    return [explored(seed) for seed in SEEDS]


def test_what_honest_agents_did_is_accepted(worlds: list[Histories]) -> None:
    proofs = [check_slices(world.history, world.changes()) for world in worlds]
    assert [()] * len(worlds) == [proof.differences for proof in proofs]
    assert all(proof.largest_sum <= world.largest_limit for proof, world in zip(proofs, worlds, strict=True))


@pytest.mark.parametrize("attempt", range(25))
def test_a_violation_anywhere_in_an_honest_history_is_caught(worlds: list[Histories], attempt: int) -> None:
    random = Random(attempt)
    world = random.choice([world for world in worlds if any(world.rows.values())])
    changes = world.changes()
    region = random.choice([region for region, rows in changes.items() if rows])
    row = random.randrange(len(changes[region]))
    documents = dict(world.history)
    spoilt = changes[region][row]
    owned = documents[spoilt.revision].slice_of(region)
    changes[region][row] = replace(spoilt, after=owned + 1)
    wanted = f"{region} held {owned + 1} at revision {spoilt.revision}, where it owned {owned}"
    assert any(wanted in line for line in check_slices(world.history, changes).differences)


@pytest.mark.parametrize("attempt", range(10))
def test_a_row_missing_anywhere_in_an_honest_history_is_caught(worlds: list[Histories], attempt: int) -> None:
    random = Random(attempt)
    world = random.choice([world for world in worlds if max(map(len, world.changes().values())) > 2])
    changes = world.changes()
    region = max(changes, key=lambda name: len(changes[name]))
    del changes[region][random.randrange(1, len(changes[region]) - 1)]
    assert check_slices(world.history, changes).differences
