"""The checker finds each kind of wrong, and nothing in a history that is right."""

from dataclasses import replace

from regionquota.chaos.books import Adjusted, Balance, Books, Held, UsageLine
from regionquota.chaos.check import Failover, Findings, check
from regionquota.chaos.history import Answer, Ask, Op
from regionquota.core.quota import QuotaKey
from regionquota.core.reservation import State

KEY = QuotaKey("acme", "vcpu")
LIMIT = 10
RIGHT = Books(
    holds=[
        Held("h1", KEY, "q1", 4, State.COMMITTED, 3),
        Held("h2", KEY, "q2", 2, State.RELEASED),
        Held("h3", KEY, "q4", 5, State.PENDING),
    ],
    lines=[UsageLine(KEY, "commit", 3, reservation_id="h1"), UsageLine(KEY, "adjust", -3, request_id="q3")],
    adjusted=[Adjusted(KEY, "q3", -3)],
    balances=[Balance(KEY, slice=10, used=0, reserved=5)],
)


def done(ask: Ask, name: str, amount: int, at: float, **more: object) -> Op:
    op = Op("eu", KEY, ask, name, amount, at, Answer.DONE, at + 0.1)
    for attribute, value in more.items():
        setattr(op, attribute, value)
    return op


def reserved(name: str, held: str, amount: int, at: float, expires_at: float = 100.0) -> Op:
    return done(Ask.RESERVE, name, amount, at, reservation_id=held, expires_at=expires_at)


def history() -> list[Op]:
    return [
        reserved("q1", "h1", 4, 1.0),
        done(Ask.COMMIT, "h1", 3, 2.0),
        reserved("q2", "h2", 2, 3.0),
        done(Ask.RELEASE, "h2", 2, 4.0),
        done(Ask.ADJUST, "q3", 3, 5.0, gives_back="h1"),
        reserved("q4", "h3", 5, 6.0),
    ]


def checked(books: Books = RIGHT, ops: list[Op] | None = None, **more: object) -> Findings:
    return check(history() if ops is None else ops, {"eu": books}, {KEY: LIMIT}, **more)  # type: ignore[arg-type]


def without_hold(name: str) -> Books:
    return replace(RIGHT, holds=[held for held in RIGHT.holds if held.id != name])


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert [] == checked().all()


def test_an_acknowledged_reserve_that_the_ledger_lacks_is_lost() -> None:
    assert ["reserve q4 of 5 in eu was acknowledged, but no such hold"] == checked(without_hold("h3")).lost


def test_a_reserve_that_holds_another_amount_is_lost() -> None:
    wrong = [*without_hold("h3").holds, Held("h3", KEY, "q4", 4, State.PENDING)]
    assert 1 == len(checked(replace(RIGHT, holds=wrong)).lost)


def test_an_acknowledged_commit_whose_hold_is_still_open_is_lost() -> None:
    wrong = [Held("h1", KEY, "q1", 4, State.PENDING), *RIGHT.holds[1:]]
    assert ["commit h1 of 3 in eu was acknowledged, but the hold is PENDING None"] == checked(
        replace(RIGHT, holds=wrong)
    ).lost


def test_a_commit_without_its_line_in_the_usage_ledger_is_lost() -> None:
    assert 1 == len(checked(replace(RIGHT, lines=RIGHT.lines[1:])).lost)


def test_an_acknowledged_start_that_the_hold_does_not_show_is_lost() -> None:
    start = done(Ask.START, "h3", 5, 6.5, operation_id="work")
    assert ["start h3 of 5 in eu was acknowledged, but the hold was not started by it"] == checked(
        ops=[*history(), start]
    ).lost
    started = [*RIGHT.holds[:2], Held("h3", KEY, "q4", 5, State.STARTED, operation_id="work")]
    assert [] == checked(replace(RIGHT, holds=started), [*history(), start]).all()
    assert 1 == len(checked(replace(RIGHT, holds=started)).phantom)


def test_an_acknowledged_release_of_a_hold_that_expired_is_lost() -> None:
    wrong = [RIGHT.holds[0], Held("h2", KEY, "q2", 2, State.EXPIRED), RIGHT.holds[2]]
    assert 1 == len(checked(replace(RIGHT, holds=wrong)).lost)


def test_an_acknowledged_adjustment_that_the_ledger_lacks_is_lost() -> None:
    assert 1 == len(checked(replace(RIGHT, adjusted=[], lines=RIGHT.lines[:1])).lost)


def test_a_request_that_holds_twice_is_doubled() -> None:
    twice = [*RIGHT.holds, Held("h9", KEY, "q4", 5, State.PENDING)]
    assert ["request q4 of acme holds 2 times in eu"] == checked(replace(RIGHT, holds=twice)).doubled


def test_a_commit_that_is_charged_twice_is_doubled() -> None:
    twice = [*RIGHT.lines, RIGHT.lines[0]]
    assert ["reservation h1 was charged 2 times in eu"] == checked(replace(RIGHT, lines=twice)).doubled


def test_an_adjustment_that_is_charged_twice_is_doubled() -> None:
    assert 1 == len(checked(replace(RIGHT, lines=[*RIGHT.lines, RIGHT.lines[1]])).doubled)


def test_what_nobody_was_told_of_may_have_happened_or_not_but_not_twice() -> None:
    unknown = [*history()[:-1], Op("eu", KEY, Ask.RESERVE, "q4", 5, 6.0, doubts=2)]
    assert [] == checked(ops=unknown).all()
    assert [] == checked(without_hold("h3"), ops=unknown).all()
    twice = replace(RIGHT, holds=[*RIGHT.holds, Held("h9", KEY, "q4", 5, State.PENDING)])
    assert 1 == len(checked(twice, ops=unknown).doubled)


def test_a_hold_that_was_refused_or_never_asked_for_is_a_phantom() -> None:
    refused = Op("eu", KEY, Ask.RESERVE, "q4", 5, 6.0, Answer.REFUSED, 6.1)
    assert 1 == len(checked(ops=[*history()[:-1], refused]).phantom)
    assert 1 == len(checked(ops=history()[:-1]).phantom)


def test_a_refusal_after_an_unclear_attempt_is_not_final() -> None:
    refused = Op("eu", KEY, Ask.RESERVE, "q4", 5, 6.0, Answer.REFUSED, 6.1, doubts=1)
    assert [] == checked(ops=[*history()[:-1], refused]).all()


def test_a_commit_a_release_and_an_adjustment_that_nobody_made_are_phantoms() -> None:
    assert 3 == len(checked(ops=[op for op in history() if op.ask is Ask.RESERVE]).phantom)


def test_what_another_region_was_asked_for_is_a_phantom_here() -> None:
    elsewhere = Op("us", KEY, Ask.RESERVE, "q9", 1, 6.0)
    here = replace(RIGHT, holds=[*RIGHT.holds, Held("h9", KEY, "q9", 1, State.PENDING)])
    assert 1 == len(checked(here, ops=[*history(), elsewhere]).phantom)


def test_more_than_the_limit_at_one_time_is_an_overshoot() -> None:
    holds = [Held("a", KEY, "qa", 6, State.EXPIRED), Held("b", KEY, "qb", 5, State.EXPIRED)]
    ops = [reserved("qa", "a", 6, 1.0, expires_at=9.0), reserved("qb", "b", 5, 2.0, expires_at=9.0)]
    found = checked(Books(holds=holds), ops)
    assert ["acme/vcpu/global: callers held 11 at 2.100, the limit is 10 and 0 were owed or lost"] == found.overshoot


def test_units_that_were_given_back_before_are_no_overshoot() -> None:
    holds = [Held("a", KEY, "qa", 6, State.RELEASED), Held("b", KEY, "qb", 5, State.EXPIRED)]
    ops = [reserved("qa", "a", 6, 1.0), done(Ask.RELEASE, "a", 6, 1.9), reserved("qb", "b", 5, 1.9)]
    assert [] == checked(Books(holds=holds), ops).all()


def test_a_commit_keeps_what_it_used_until_it_is_given_back() -> None:
    books = replace(RIGHT, holds=[*RIGHT.holds, Held("b", KEY, "qb", 8, State.EXPIRED)])
    overlapping = [*history(), reserved("qb", "b", 8, 4.5, expires_at=5.9)]
    assert ["acme/vcpu/global: callers held 11 at 4.600, the limit is 10 and 0 were owed or lost"] == checked(
        books, overlapping
    ).overshoot


def test_what_is_owed_is_recorded_and_no_overshoot() -> None:
    books = replace(
        RIGHT,
        holds=[*RIGHT.holds, Held("b", KEY, "qb", 8, State.EXPIRED)],
        lines=[*RIGHT.lines, UsageLine(KEY, "overdraft", 1, at=4.55)],
    )
    assert [] == checked(books, [*history(), reserved("qb", "b", 8, 4.5, expires_at=5.9)]).all()


def test_more_in_the_counters_than_the_limit_is_an_overshoot() -> None:
    assert 1 == len(checked(replace(RIGHT, balances=[Balance(KEY, 10, 6, 5)])).overshoot)
    assert [] == checked(replace(RIGHT, balances=[Balance(KEY, 10, 6, 5, debt=1)])).overshoot


def test_what_the_dead_server_had_and_its_copy_lacks_was_lost_with_it_and_no_longer_counts() -> None:
    dead = Books(holds=[Held("a", KEY, "qa", 6, State.PENDING)])
    copy = Books(holds=[Held("b", KEY, "qb", 6, State.EXPIRED)])
    ops = [reserved("qa", "a", 6, 1.0), reserved("qb", "b", 6, 3.0)]
    found = checked(copy, ops, failovers={"eu": Failover(2.0, 1, dead)})
    assert [] == found.all()
    assert [ops[0]] == found.expected


def test_what_the_dead_server_had_not_either_is_lost() -> None:
    dead = Books(holds=[])
    ops = [reserved("qa", "a", 6, 1.0)]
    assert 1 == len(checked(Books(), ops, failovers={"eu": Failover(2.0, 1, dead)}).lost)


def test_a_failover_that_should_lose_nothing_excuses_nothing() -> None:
    dead = Books(holds=[Held("a", KEY, "qa", 6, State.PENDING)])
    found = checked(Books(), [reserved("qa", "a", 6, 1.0)], failovers={"eu": Failover(2.0, 1, dead, excuses=False)})
    assert 1 == len(found.lost)


def test_what_the_copy_kept_still_counts_after_the_failover() -> None:
    kept = Books(holds=[Held("a", KEY, "qa", 6, State.PENDING), Held("b", KEY, "qb", 6, State.PENDING)])
    ops = [reserved("qa", "a", 6, 1.0), reserved("qb", "b", 6, 3.0)]
    assert 1 == len(checked(kept, ops, failovers={"eu": Failover(2.0, 1, kept)}).overshoot)


def test_units_that_the_copy_never_had_make_room_when_they_are_returned_to_it() -> None:
    dead = Books(
        holds=[Held("a", KEY, "qa", 6, State.COMMITTED, 6)], lines=[UsageLine(KEY, "commit", 6, reservation_id="a")]
    )
    copy = Books(
        holds=[Held("b", KEY, "qb", 8, State.PENDING), Held("c", KEY, "qc", 8, State.PENDING)],
        lines=[UsageLine(KEY, "adjust", -6, request_id="q3")],
        adjusted=[Adjusted(KEY, "q3", -6)],
    )
    ops = [
        reserved("qa", "a", 6, 1.0),
        done(Ask.COMMIT, "a", 6, 1.2),
        reserved("qb", "b", 8, 3.0),
        done(Ask.ADJUST, "q3", 6, 4.0, gives_back="a"),
        reserved("qc", "c", 8, 5.0),
    ]
    assert [] == checked(copy, ops, failovers={"eu": Failover(2.0, 1, dead)}).all()
    assert 1 == len(checked(copy, [*ops[:3], *ops[4:]], failovers={"eu": Failover(2.0, 1, dead)}).overshoot)
