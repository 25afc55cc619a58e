"""Metered usage: sources report totals, and no word adds twice."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.core.builders import OTHER, QUOTA, Book, at

from regionquota.core.commands import Invalid, Meter, Metered, Outcome, UnknownQuota
from regionquota.core.counter import Counter
from regionquota.core.quota import MAX_AMOUNT, Kind


def word(sequence: int, total: int, incarnation: str = "boot-1", source: str = "gateway") -> Meter:
    return Meter(QUOTA, source, incarnation, sequence, total)


def metered(outcome: Outcome) -> Metered:
    assert isinstance(outcome, Metered)
    return outcome


def test_a_total_adds_what_it_is_more_than_the_one_before() -> None:
    book = Book(100)
    added = [metered(one).reading.added for one in book.do(word(1, 10), word(2, 25), word(3, 25))]
    assert [10, 15, 0] == added
    assert (25, 75) == (book.counter().used, book.counter().available)
    assert [("meter", 10), ("meter", 15)] == book.entries()


def test_a_word_that_is_sent_again_adds_nothing() -> None:
    book = Book(100)
    first, again = book.do(word(1, 10), word(1, 10))
    assert (False, True) == (metered(first).replayed, metered(again).replayed)
    assert metered(first).reading == metered(again).reading
    assert 10 == book.counter().used


def test_a_word_that_was_overtaken_adds_nothing() -> None:
    book = Book(100)
    book.do(word(2, 25))
    (late,) = book.do(word(1, 10))
    assert (True, 25) == (metered(late).replayed, metered(late).reading.total)
    assert 25 == book.counter().used


def test_a_source_that_began_anew_counts_from_zero_again() -> None:
    book = Book(100)
    book.do(word(7, 30), word(1, 4, "boot-2"))
    assert 34 == book.counter().used


def test_a_late_word_of_what_ran_before_adds_only_what_was_not_counted() -> None:
    book = Book(100)
    book.do(word(7, 30), word(1, 4, "boot-2"))
    book.do(word(7, 30), word(6, 28), word(8, 33), word(8, 33))
    assert 30 + 4 + 3 == book.counter().used


def test_sources_are_counted_apart() -> None:
    book = Book(100)
    book.do(word(1, 10), word(1, 10, source="other"))
    assert 20 == book.counter().used


def test_a_total_that_falls_is_refused_and_the_remedy_named() -> None:
    book = Book(100)
    book.do(word(1, 10))
    (refused,) = book.do(word(2, 9))
    assert isinstance(refused, Invalid)
    assert "total" == refused.field
    assert "takes a new incarnation" in refused.message
    assert 10 == book.counter().used


def test_what_was_metered_beyond_what_is_available_is_owed() -> None:
    book = Book(100)
    book.do(word(1, 130))
    assert Counter(slice=100, used=130, overdraft_issued=30) == book.counter()


def test_a_total_that_could_not_be_stored_is_refused_and_may_come_again() -> None:
    book = Book(100)
    book.adjust(5)
    assert [Invalid] == [type(one) for one in book.do(word(1, MAX_AMOUNT))]
    assert [Metered] == [type(one) for one in book.do(word(1, MAX_AMOUNT - 5))]


def test_what_is_metered_is_charged_to_the_parents_too() -> None:
    book = Book(100)
    book.resize(100, OTHER)
    book.do(Meter(QUOTA, "gateway", "boot-1", 1, 10, (OTHER,)))
    assert (10, 10) == (book.counter().used, book.counter(OTHER).used)


def test_an_unknown_quota_cannot_be_metered() -> None:
    assert [UnknownQuota(OTHER)] == Book(100).do(Meter(OTHER, "gateway", "boot-1", 1, 10))


def test_a_total_that_runs_on_over_the_end_of_a_period_adds_its_rest_to_the_new_one() -> None:
    book = Book(100, Kind.CONSUMABLE, at(2026, 5, 31, 23, 59))
    book.do(word(1, 60))
    book.now = at(2026, 6, 1)
    book.do(word(2, 75), word(1, 60))
    assert 15 == book.counter().used


@given(
    lives=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), min_size=1, max_size=3), chance=st.randoms()
)
def test_however_words_are_lost_repeated_and_reordered_each_unit_is_added_once(
    lives: list[list[int]], chance: Random
) -> None:
    """Each life of the source counts up; of all its words any come in any order, and at last the last one."""
    words, last = [], []
    for life, steps in enumerate(lives):
        told = [word(n + 1, sum(steps[: n + 1]), f"boot-{life}") for n in range(len(steps))]
        words += [one for one in told for _ in range(chance.randint(0, 2))]
        last.append(told[-1])
    chance.shuffle(words)
    book = Book(100)
    book.do(*words, *last)
    assert sum(map(sum, lives)) == book.counter().used
