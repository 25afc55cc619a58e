"""Whatever happens to a region's balances, the ledgers explain them to the last unit."""

from hypothesis import HealthCheck, given, settings
from tests.core.builders import differences, finish
from tests.core.scripts import KINDS, Batch, Happening, Heard, scripts

from regionquota.adapters.memory.region_store import MemoryRegionStore
from regionquota.core.commands import Adjusted, Command, Granted, Outcome, Settled
from regionquota.core.quota import MAX_AMOUNT
from regionquota.core.reservation import Reservation, State

long = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def play(store: MemoryRegionStore, happening: Happening) -> list[tuple[Command, Outcome]]:
    match happening:
        case Batch(commands, now):
            return list(zip(commands, finish(store.transact(commands, now)), strict=True))
        case Heard(key, document, revision, now):
            finish(store.apply(key, document, revision, now))
            return []


@long
@given(scripts())
def test_the_ledgers_replay_to_the_balances_after_every_step(script: list[Happening]) -> None:
    store = MemoryRegionStore("eu")
    for happening in script:
        play(store, happening)
        assert [] == differences(finish(store.check_balances()))


@long
@given(scripts())
def test_no_balance_ever_leaves_what_can_be_stored(script: list[Happening]) -> None:
    store = MemoryRegionStore("eu")
    for happening in script:
        play(store, happening)
    for check in finish(store.check_balances()):
        counter = check.counter
        assert max(counter.slice, counter.reserved, counter.used, counter.overdraft_issued) <= MAX_AMOUNT


@long
@given(scripts())
def test_epochs_and_revisions_never_fall(script: list[Happening]) -> None:
    store, newest = MemoryRegionStore("eu"), dict.fromkeys(KINDS, (0, 0))
    for happening in script:
        play(store, happening)
        for held in finish(store.holdings()):
            epoch, revision = newest[held.key]
            assert held.epoch >= epoch
            assert held.revision >= revision
            newest[held.key] = (held.epoch, held.revision)


@long
@given(scripts())
def test_what_has_ended_stays_ended_and_a_hold_keeps_its_amount(script: list[Happening]) -> None:
    store = MemoryRegionStore("eu")
    before: dict[str, Reservation] = {}
    for happening in script:
        play(store, happening)
        for name, now in store._reservations.items():
            was = before.get(name, now)
            assert (was.amount, was.epoch, was.key) == (now.amount, now.epoch, now.key)
            late = (was.state, now.state) == (State.EXPIRED, State.COMMITTED)
            assert was.state is State.PENDING or late or was == now
        before = dict(store._reservations)


@long
@given(scripts())
def test_a_batch_that_was_done_is_not_done_again(script: list[Happening]) -> None:
    """After a connection broke at COMMIT, the same batch is put again."""
    store = MemoryRegionStore("eu")
    for happening in script:
        first = play(store, happening)
        done, entries = finish(store.check_balances()), len(store._usage)
        if first and all(isinstance(outcome, Granted | Adjusted | Settled) for _, outcome in first):
            again = play(store, happening)
            assert (done, entries) == (finish(store.check_balances()), len(store._usage))
            assert all(outcome.replayed for _, outcome in again if isinstance(outcome, Granted | Adjusted))


@long
@given(scripts())
def test_one_batch_does_what_its_commands_do_one_by_one(script: list[Happening]) -> None:
    together, apart = MemoryRegionStore("eu"), MemoryRegionStore("eu")
    for happening in script:
        outcomes = play(together, happening)
        if isinstance(happening, Batch):
            singles = [Batch([command], happening.now) for command in happening.commands]
            assert outcomes == [one for single in singles for one in play(apart, single)]
        else:
            play(apart, happening)
    assert finish(together.check_balances()) == finish(apart.check_balances())
