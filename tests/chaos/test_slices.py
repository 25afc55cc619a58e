"""Invariant B over both histories of a region that failed over."""

from tests.core.builders import allocation

from regionquota.chaos.books import Books, SliceRow
from regionquota.chaos.check import Failover
from regionquota.chaos.slices import slice_differences
from regionquota.core.quota import QuotaKey

KEY = QuotaKey("acme", "vcpu")
HISTORY = {
    KEY: [
        (2, allocation(10, eu=6)),
        (4, allocation(10, eu=4)),
        (6, allocation(10, eu=4, us=6)),
        (8, allocation(10, eu=3, us=7)),
    ]
}
US = Books(slices=[SliceRow(KEY, 6, 0, 6), SliceRow(KEY, 8, 6, 7)])


def eu(*rows: tuple[int, int, int]) -> Books:
    return Books(slices=[SliceRow(KEY, *row) for row in rows])


def differences(books: Books, dead: Books | None = None) -> list[str]:
    failovers = {} if dead is None else {"eu": Failover(0.0, 4, dead)}
    return list(slice_differences(HISTORY, {"eu": books, "us": US}, failovers))


def test_slices_that_were_always_owned_are_right() -> None:
    assert [] == differences(eu((2, 0, 6), (3, 6, 4), (7, 4, 3)))


def test_a_decrease_after_the_hand_over_is_found() -> None:
    assert 1 == len(differences(eu((2, 0, 6), (4, 6, 4), (7, 4, 3))))


def test_a_decrease_that_was_lost_with_the_dead_server_is_made_up_for_by_its_copy() -> None:
    copy = eu((2, 0, 6), (6, 6, 4), (7, 4, 3))
    assert [] == differences(copy, dead=eu((2, 0, 6), (3, 6, 4)))
    assert [] != differences(copy)


def test_a_dead_server_that_held_more_than_it_owned_is_found() -> None:
    assert [] != differences(eu((2, 0, 6), (6, 6, 4), (7, 4, 3)), dead=eu((2, 0, 6), (4, 6, 4)))


def test_a_copy_that_raises_what_it_does_not_own_is_found() -> None:
    assert [] != differences(eu((2, 0, 6), (6, 6, 5), (7, 5, 3)), dead=eu((2, 0, 6), (3, 6, 4)))
