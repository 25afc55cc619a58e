"""Reservations over several quotas, all or none; and guarantees that siblings cannot take."""

import pytest
from tests.core.builders import OTHER, QUOTA, Book, adjust, reserve

from regionquota.core.commands import (
    Adjusted,
    Charge,
    Commit,
    Denied,
    DenyReason,
    Forbidden,
    Granted,
    Invalid,
    Outcome,
    Pledge,
    Pledged,
    Settled,
    UnknownQuota,
)
from regionquota.core.counter import Counter
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, QuotaKey
from regionquota.core.reservation import State

PROJECT, SIBLING = (QuotaKey("acme", "vcpu", scope) for scope in ("project:x", "project:y"))
LIMIT = 100


def granted(outcome: Outcome) -> Granted:
    assert isinstance(outcome, Granted)
    return outcome


def binding(outcome: Outcome) -> tuple[QuotaKey, DenyReason]:
    """The line that did not fit."""
    assert isinstance(outcome, Denied)
    return outcome.holding.key, outcome.reason


def family(
    guarantee: int = 0,
    *,
    total: int = 100,
    project: int = 100,
    sibling: int = 100,
    also: int = 0,
    mode: Enforcement = Enforcement.HARD,
) -> Book:
    """Two projects under the global quota. `also` is the sibling's own guarantee."""
    book = Book(total)
    book.resize(project, PROJECT, QuotaPolicy(guarantee=guarantee), LIMIT)
    book.resize(sibling, SIBLING, QuotaPolicy(guarantee=also, enforcement=mode), LIMIT)
    book.do(Pledge(PROJECT, QUOTA), Pledge(SIBLING, QUOTA))
    return book


def ask(book: Book, amount: int, key: QuotaKey = PROJECT, name: str = "r", ttl: int = 60) -> Outcome:
    """As a region server completes it: the parent is charged, too."""
    return book.do(reserve(amount, name=name, key=key, ttl=ttl, also=[Charge(QUOTA, amount, (0,))]))[0]


def kept_for(book: Book) -> int:
    """What is kept in the parent; it is the sum of the liens."""
    parent = book.holding()
    assert parent.guaranteed == book.holding(PROJECT).lien + book.holding(SIBLING).lien
    return parent.guaranteed


def test_a_reservation_is_held_in_all_its_lines() -> None:
    book = family()
    ask(book, 30)
    assert (30, 30, 0) == tuple(book.counter(key).reserved for key in (PROJECT, QUOTA, SIBLING))


@pytest.mark.parametrize(
    ("total", "project", "line"),
    [(100, 29, PROJECT), (29, 100, QUOTA), (29, 29, PROJECT)],
    ids=["own", "parent", "both"],
)
def test_all_lines_are_held_or_none_and_the_first_that_does_not_fit_is_named(
    total: int, project: int, line: QuotaKey
) -> None:
    book = family(total=total, project=project)
    assert (line, DenyReason.OVER_LIMIT) == binding(ask(book, 30))
    assert (0, 0) == (book.counter(PROJECT).reserved, book.counter(QUOTA).reserved)


def test_a_denial_says_what_the_binding_line_was_asked_for_and_could_give() -> None:
    book = family(total=29)
    word = ask(book, 30)
    assert isinstance(word, Denied)
    assert (30, 29) == (word.amount, word.free)


def test_a_line_without_a_counter_is_named_and_nothing_is_held() -> None:
    book = Book(100)
    (word,) = book.do(reserve(5, name="r", also=[Charge(OTHER, 5)]))
    assert UnknownQuota(OTHER) == word
    assert 0 == book.counter().reserved


def test_a_soft_line_does_not_loosen_a_hard_one() -> None:
    book = family(total=10, mode=Enforcement.SOFT)
    assert (QUOTA, DenyReason.OVER_LIMIT) == binding(ask(book, 11, SIBLING))


def test_what_any_line_would_have_been_denied_for_is_said() -> None:
    book = family(sibling=5, mode=Enforcement.SHADOW)
    word = granted(ask(book, 11, SIBLING))
    assert (DenyReason.OVER_LIMIT, 6) == (word.would_deny, word.reservation.over)
    assert 0 == word.reservation.also[0].over


@pytest.mark.parametrize(("actual", "parent"), [(None, 30), (12, 12), (40, 40)])
def test_a_line_that_follows_from_another_is_settled_at_what_that_one_is(actual: int | None, parent: int) -> None:
    book = family()
    ask(book, 30)
    book.commit("r", actual)
    assert (actual or 30, parent) == (book.counter(PROJECT).used, book.counter(QUOTA).used)
    assert (0, 0) == (book.counter(PROJECT).reserved, book.counter(QUOTA).reserved)


def test_a_line_that_follows_from_several_is_settled_by_what_they_save_together() -> None:
    book = family()
    book.do(reserve(30, name="r", key=PROJECT, also=[Charge(SIBLING, 20), Charge(QUOTA, 50, (0, 1))]))
    book.do(Commit("r", 25, {SIBLING: 12}))
    assert (25, 12, 37) == tuple(book.counter(key).used for key in (PROJECT, SIBLING, QUOTA))


def test_a_line_of_its_own_is_settled_at_what_was_held_unless_named() -> None:
    book = family()
    book.do(reserve(30, name="r", key=PROJECT, also=[Charge(SIBLING, 20)]))
    book.commit("r", 10)
    assert (10, 20) == (book.counter(PROJECT).used, book.counter(SIBLING).used)


def test_a_named_line_may_be_settled_at_nothing() -> None:
    book = family()
    ask(book, 30)
    book.do(Commit("r", None, {QUOTA: 0}))
    assert (30, 0) == (book.counter(PROJECT).used, book.counter(QUOTA).used)


def test_a_line_that_the_reservation_does_not_have_is_refused() -> None:
    book = family()
    ask(book, 30)
    (word,) = book.do(Commit("r", None, {SIBLING: 1}))
    assert isinstance(word, Invalid)
    assert ("lines", State.PENDING) == (word.field, book.reservation("r").state)


def test_a_commit_repeated_with_the_same_lines_is_answered_like_the_first() -> None:
    book = family()
    ask(book, 30)
    (first,) = book.do(Commit("r", 20, {QUOTA: 25}))
    (again,) = book.do(Commit("r", 20, {QUOTA: 25}))
    assert isinstance(first, Settled)
    assert Settled(first.reservation, replayed=True) == again


def test_a_commit_repeated_with_other_lines_is_refused() -> None:
    book = family()
    ask(book, 30)
    book.do(Commit("r", 20, {QUOTA: 25}))
    (word,) = book.do(Commit("r", 20, {QUOTA: 26}))
    assert isinstance(word, Forbidden)
    assert "already committed with other amounts in its lines" == word.message
    assert 25 == book.counter(QUOTA).used


def test_a_commit_that_one_line_could_not_store_settles_none() -> None:
    book = family()
    ask(book, 30)
    book.do(adjust(MAX_AMOUNT - 40, request="x"))
    before = book.counter(PROJECT)
    assert isinstance(book.commit("r", 60), Invalid)
    assert before == book.counter(PROJECT)
    assert isinstance(book.commit("r", 40), Settled)


def test_a_release_gives_all_lines_back() -> None:
    book = family()
    ask(book, 30)
    book.release("r")
    assert [Counter(slice=100, available=100)] * 2 == [book.counter(key) for key in (PROJECT, QUOTA)]


def test_an_expiry_gives_all_lines_back_and_a_late_commit_charges_them_all() -> None:
    book = family()
    ask(book, 30, ttl=5)
    book.now += 5
    book.expire("r")
    assert [Counter(slice=100, available=100)] * 2 == [book.counter(key) for key in (PROJECT, QUOTA)]
    book.commit("r", 10)
    assert [Counter(slice=100, available=90, used=10)] * 2 == [book.counter(key) for key in (PROJECT, QUOTA)]


def test_a_guarantee_that_is_not_used_is_kept_in_the_parent() -> None:
    assert 40 == kept_for(family(40))


def test_a_sibling_cannot_take_what_is_guaranteed() -> None:
    book = family(40)
    assert (QUOTA, DenyReason.OVER_LIMIT) == binding(ask(book, 61, SIBLING))
    assert isinstance(ask(book, 60, SIBLING), Granted)


def test_who_names_the_parent_alone_cannot_take_what_is_guaranteed_either() -> None:
    book = family(40)
    word = book.reserve(61)
    assert isinstance(word, Denied)
    assert 60 == word.free


def test_the_owner_of_a_guarantee_can_take_it_when_siblings_have_taken_the_rest() -> None:
    book = family(40)
    ask(book, 60, SIBLING, "s")
    assert isinstance(ask(book, 40), Granted)
    assert 0 == kept_for(book)


def test_the_owner_borrows_beyond_its_guarantee_from_what_is_shared() -> None:
    book = family(40)
    assert isinstance(ask(book, 100), Granted)


def test_the_owner_cannot_take_what_is_guaranteed_to_another() -> None:
    book = family(40, also=30)
    assert 70 == kept_for(book)
    assert (QUOTA, DenyReason.OVER_LIMIT) == binding(ask(book, 71))
    assert isinstance(ask(book, 70), Granted)


def test_a_guarantee_that_is_in_use_is_not_kept_a_second_time() -> None:
    book = family(40)
    ask(book, 25)
    assert 15 == kept_for(book)
    book.commit("r", 10)
    assert 30 == kept_for(book)
    book.do(adjust(-10, request="x", key=PROJECT, also=[QUOTA]))
    assert 40 == kept_for(book)


def test_a_guarantee_comes_back_with_what_expires() -> None:
    book = family(40)
    ask(book, 25, ttl=5)
    book.now += 5
    book.expire("r")
    assert 40 == kept_for(book)


def test_a_guarantee_is_kept_in_each_region_by_its_part_of_the_limit() -> None:
    assert 19 == kept_for(family(39, project=50))


def test_a_guarantee_that_is_taken_back_is_not_kept_any_longer() -> None:
    book = family(40)
    book.resize(100, PROJECT, DEFAULT_POLICY, LIMIT)
    book.do(Pledge(PROJECT, QUOTA))
    assert 0 == kept_for(book)


def test_a_pledge_that_is_up_to_date_changes_nothing() -> None:
    book = family(40)
    (word,) = book.do(Pledge(PROJECT, QUOTA))
    assert isinstance(word, Pledged)
    assert 40 == kept_for(book)


def test_a_guarantee_in_an_unknown_parent_cannot_be_pledged() -> None:
    book = Book(100)
    book.resize(100, SIBLING, QuotaPolicy(guarantee=5, parent="team"), LIMIT)
    team = QuotaKey("acme", "vcpu", "team")
    assert [UnknownQuota(team)] == book.do(Pledge(SIBLING, team))


def test_guarantees_whose_sum_passes_the_largest_number_are_kept_as_far_as_it_goes() -> None:
    book = Book(MAX_AMOUNT)
    for key in (PROJECT, SIBLING):
        book.resize(MAX_AMOUNT, key, QuotaPolicy(guarantee=MAX_AMOUNT))
    book.do(Pledge(PROJECT, QUOTA), Pledge(SIBLING, QUOTA))
    assert MAX_AMOUNT == kept_for(book)
    assert isinstance(ask(book, 5, SIBLING), Denied)
    assert isinstance(ask(book, 5), Granted)


def test_a_part_of_a_project_uses_the_projects_guarantee() -> None:
    part = QuotaKey("acme", "vcpu", "part")
    book = family(40)
    book.resize(100, part, QuotaPolicy(parent="project:x"), LIMIT)
    ask(book, 60, SIBLING, "s")
    lines = [Charge(PROJECT, 40, (0,)), Charge(QUOTA, 40, (0,))]
    (word,) = book.do(reserve(40, name="r", key=part, also=lines))
    assert isinstance(word, Granted)
    assert 0 == kept_for(book)


def test_an_adjustment_is_made_in_the_parents_too() -> None:
    book = family()
    (word,) = book.do(adjust(30, request="x", key=PROJECT, also=[QUOTA]))
    assert isinstance(word, Adjusted)
    assert (30, 30) == (book.counter(PROJECT).used, book.counter(QUOTA).used)


def test_an_adjustment_that_a_parent_could_not_store_is_made_nowhere() -> None:
    book = family()
    book.adjust(MAX_AMOUNT - 5)
    assert [Invalid] == [type(one) for one in book.do(adjust(30, request="x", key=PROJECT, also=[QUOTA]))]
    assert 0 == book.counter(PROJECT).used


def test_a_parent_that_was_defined_later_gives_back_what_it_has() -> None:
    book = family()
    book.do(adjust(30, request="x", key=PROJECT))
    book.do(adjust(10, request="y"))
    book.do(adjust(-30, request="z", key=PROJECT, also=[QUOTA]))
    assert (0, 0) == (book.counter(PROJECT).used, book.counter(QUOTA).used)


def test_an_adjustment_in_a_parent_without_a_counter_is_made_nowhere_and_the_parent_named() -> None:
    book = Book(100)
    assert [UnknownQuota(OTHER)] == book.do(adjust(30, request="x", also=[OTHER]))
    assert 0 == book.counter().used
