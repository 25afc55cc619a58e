"""Invariant A under every sequence of transitions, checked without the allocation's own check."""

from collections import Counter as Tally

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from regionquota.core.allocation import (
    Allocation,
    LimitSource,
    Move,
    VersionedLimit,
    grant,
    hand_over,
    new_allocation,
    request_moves,
    set_limit,
)
from regionquota.core.quota import MAX_AMOUNT, Kind
from regionquota.errors import ProtocolError, StaleVersion

REGIONS = ("ap", "eu", "us")
regions = st.sampled_from(REGIONS)
amounts = st.integers(0, 1000) | st.integers(0, MAX_AMOUNT)
epochs = st.integers(24_300, 24_303)


class Documents(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.document: Allocation = new_allocation(Kind.CONSUMABLE, LimitSource.PLAN, VersionedLimit(1000, 1))
        self.newest = Tally({LimitSource.PLAN: 1})

    @rule(source=st.sampled_from(LimitSource), amount=st.none() | amounts, newer=st.integers(1, 3))
    def a_newer_limit_is_set(self, source: LimitSource, amount: int | None, newer: int) -> None:
        before = self.document
        self.newest[source] += newer
        self.document = set_limit(before, source, VersionedLimit(amount, self.newest[source]))
        assert before.slices == self.document.slices

    @rule(source=st.sampled_from(LimitSource), amount=amounts, older=st.integers(1, 3))
    def an_older_limit_is_refused(self, source: LimitSource, amount: int, older: int) -> None:
        if self.newest[source] == 0:
            return
        try:
            set_limit(self.document, source, VersionedLimit(amount, self.newest[source] - older))
        except StaleVersion:
            return
        raise AssertionError("an older version was accepted")

    @rule(wanted=st.dictionaries(regions, amounts))
    def the_pool_grants(self, wanted: dict[str, int]) -> None:
        before = self.document
        possible = sum(wanted.values()) <= max(0, before.pool)
        try:
            self.document = grant(before, wanted)
        except ProtocolError:
            assert not possible
        else:
            assert possible

    @rule(wanted=st.lists(st.tuples(regions, st.none() | regions, st.integers(1, 1500)), max_size=4))
    def moves_are_requested(self, wanted: list[tuple[str, str | None, int]]) -> None:
        moves = [Move(f"m{n}", *parts) for n, parts in enumerate(wanted) if parts[0] != parts[1]]
        self.document = request_moves(self.document, moves)

    @rule(donor=regions, part=st.floats(0, 1), epoch=epochs)
    def a_donor_hands_over(self, donor: str, part: float, epoch: int) -> None:
        before = self.document
        owned = before.slice_of(donor)
        held = min(owned, int(owned * part))
        self.document = hand_over(before, donor, held, epoch)
        after = self.document
        asked = sum(move.amount for move in before.moves_from(donor))
        assert owned - after.slice_of(donor) == min(asked, owned - held)
        assert held <= after.slice_of(donor)
        assert all(before.slice_of(region) <= after.slice_of(region) for region in REGIONS if region != donor)
        assert before.epoch <= after.epoch
        assert epoch <= after.epoch

    @invariant()
    def the_parts_sum_to_the_limit(self) -> None:
        document = self.document
        assert document.limit == document.pool + document.retired_units + sum(document.slices.values())

    @invariant()
    def nobody_owns_less_than_nothing(self) -> None:
        assert min(self.document.slices.values(), default=0) >= 0

    @invariant()
    def it_is_equal_to_a_copy(self) -> None:
        assert self.document == replace(self.document)


TestDocuments = Documents.TestCase
TestDocuments.settings = settings(max_examples=60, stateful_step_count=30)
