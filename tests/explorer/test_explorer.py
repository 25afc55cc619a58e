"""The explorer itself: that it finds what is wrong, says it well, and says the same again."""

from dataclasses import replace
from pathlib import Path

import pytest

from regionquota.explorer import exhaustive
from regionquota.explorer.ablations import ABLATIONS, document, look, without
from regionquota.explorer.campaign import Options, explore, story, tell
from regionquota.explorer.choices import Choices, numbers, shrink
from regionquota.explorer.corpus import keep, kept
from regionquota.explorer.faults import Fault
from regionquota.explorer.invariants import Invariant
from regionquota.explorer.run import STEPS, Script, run, script
from regionquota.explorer.seen import Seen
from regionquota.explorer.starts import starts

ROOT = Path(__file__).parents[2]
CORPUS = kept(ROOT / "simulations" / "corpus.json")
HONEST_RUNS = 1_500
LEAST_SAFEGUARDS = 12


def table() -> dict[str, int]:
    """Switch and seed, as docs/ablations.md has them."""
    rows = [line.split("|") for line in (ROOT / "docs" / "ablations.md").read_text().splitlines()]
    return {row[1].strip(" `"): int(row[3]) for row in rows if len(row) > 4 and row[3].strip().isdigit()}


def test_no_interleaving_breaks_an_invariant() -> None:
    tally = explore(Options(runs=HONEST_RUNS, seconds=100, workers=1))
    assert [] == tally.violations
    assert HONEST_RUNS == tally.runs
    # What was explored was worth exploring.
    assert tally.distinct_states > HONEST_RUNS / 2
    seldom = {fault for fault in Fault if tally.faults[fault] < HONEST_RUNS / 50}
    assert seldom <= {Fault.DEPOSED}
    assert {name for name, count in tally.deeds.items() if count == 0} == set()
    assert tally.steps_per_run > STEPS


def test_several_workers_count_what_one_counts() -> None:
    one = explore(Options(runs=60, seconds=100, workers=1))
    two = explore(Options(runs=60, seconds=100, workers=2))
    assert (one.runs, one.faults, one.deeds, one.distinct_states) == (
        two.runs,
        two.faults,
        two.deeds,
        two.distinct_states,
    )


@pytest.mark.parametrize("found", CORPUS)
def test_what_was_once_found_is_not_found_again(found: str) -> None:
    assert run(CORPUS[found]).violation is None


RECOVERED = (5034847, 5008667, 5014810, 9023916, 30229089)
"""Runs that lose etcd: units waited for the next period, or were counted twice; debt became a slice."""
HELPED = 1013444
"""A move was kept that names a region that was frozen since."""


@pytest.mark.parametrize("seed", RECOVERED)
def test_after_a_recovery_everything_comes_to_rest_within_the_limit(seed: int) -> None:
    wanted = replace(script(seed), rest=True)
    assert wanted.loses_etcd
    assert run(wanted).violation is None


def test_who_runs_short_is_not_helped_by_a_frozen_region() -> None:
    assert run(replace(script(HELPED), urgent=True)).violation is None


def test_what_finds_the_same_is_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "corpus.json"
    other = Script(4, (5,), rest=True, fails_over=True)
    keep(file, {"B is broken": Script(1, (2, 3), rest=False), "C is broken": other})
    keep(file, {"B is broken": Script(6, (7,), rest=False)})
    assert {"B is broken": Script(6, (7,), rest=False), "C is broken": other} == kept(file)


@pytest.mark.parametrize("name", ABLATIONS)
def test_without_a_safeguard_its_seed_breaks_something(name: str) -> None:
    assert look(ABLATIONS[name], table()[name]) is not None


def test_the_table_of_safeguards_is_current() -> None:
    seeds = table()
    assert len(seeds) >= LEAST_SAFEGUARDS
    missed = [look(ablation, seeds[name]) for name, ablation in ABLATIONS.items()]
    assert document([one for one in missed if one is not None]) == (ROOT / "docs" / "ablations.md").read_text()


def test_donors_have_less_than_was_believed_as_much_and_more() -> None:
    beyond = [
        move.believed - start.stores[move.source].held[key].counter.available
        for start in starts()
        for key, (_, document) in start.checks.documents.items()
        for move in document.moves
        if move.believed
    ]
    assert {-1, 0, 1} == {(units > 0) - (units < 0) for units in beyond}


def test_a_safeguard_is_back_in_its_place_afterwards() -> None:
    ablation = ABLATIONS["mod-revision"]
    seed = table()[ablation.name]
    with without(ablation):
        assert run(script(seed)).violation is not None
    assert run(script(seed)).violation is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("older-revision", Invariant.OWNED), ("mod-revision", Invariant.OWNED), ("epoch-guard", Invariant.PROMISE)],
)
def test_the_fences_of_the_protocol_are_missed_for_what_they_are_for(name: str, expected: Invariant) -> None:
    missed = look(ABLATIONS[name], table()[name])
    assert missed is not None
    assert expected is missed.invariant


def test_one_seed_is_one_run() -> None:
    assert tell(script(4711)) == tell(script(4711))
    first, again = run(script(4711)), run(script(4711))
    assert (first.path, first.states, first.faults) == (again.path, again.states, again.faults)


def test_a_failing_run_is_shrunk_to_few_steps_that_still_fail() -> None:
    ablation = ABLATIONS["decrease-first"]
    seed = table()[ablation.name]
    with without(ablation):
        found = story(script(seed))
        assert found is not None
        assert found.steps < len(script(seed).numbers) - 1
        assert str(run(found.script).violation) == found.said
    assert found.said.startswith("B: ")
    assert len(found.lines) >= found.steps - 1


def test_nothing_to_tell_of_a_run_that_breaks_nothing() -> None:
    assert story(script(4711)) is None


def test_shrinking_leaves_what_matters() -> None:
    assert [7, 9] == sorted(shrink(list(range(20)), lambda given: {7, 9} <= set(given)))


def test_choices_are_the_digits_of_a_number() -> None:
    choices = Choices([2 + 3 * 4])
    assert choices.step()
    assert (2, 4, 0) == (choices.pick(3), choices.pick(7), choices.pick(5))
    assert not choices.step()
    assert 0 == choices.pick(9)


def test_paths_tell_runs_apart() -> None:
    def path(given: list[int]) -> int:
        choices = Choices(given)
        while choices.step():
            choices.pick(2)
        return choices.path

    assert path([0, 1]) != path([1, 0])
    assert path([0, 1]) == path([2, 3])  # nobody asked for more than the last bit
    assert numbers(1, 5) != numbers(2, 5)


def test_what_was_seen_counts_once() -> None:
    one, other = Seen(), Seen()
    assert one.add(-5)
    assert not one.add(-5)
    other.add(-5)
    other.add(6)
    one.merge(other)
    assert 2 == one.count()


@pytest.mark.timeout(300)
def test_the_small_configuration_is_covered() -> None:
    done = exhaustive.explore()
    assert done.violation is None
    assert done.states > 5_000


def test_covering_everything_finds_a_fence_that_is_missing() -> None:
    with without(ABLATIONS["mod-revision"]):
        done = exhaustive.explore()
    assert done.violation is not None
    assert done.violation.startswith("B: ")
    assert done.trace
