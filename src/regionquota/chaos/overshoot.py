"""Whether more was admitted than the limit, by what callers certainly held and by what the counters say. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from regionquota.chaos.books import Books, UsageLine
from regionquota.chaos.history import Answer, Ask, Op
from regionquota.core.quota import QuotaKey, Region


def over_at_rest(books: Mapping[Region, Books], limits: Mapping[QuotaKey, int]) -> Iterator[str]:
    for key, limit in limits.items():
        balances = [balance for one in books.values() for balance in one.balances if balance.key == key]
        spent = sum(balance.used + balance.reserved for balance in balances)
        debt = sum(balance.debt for balance in balances)
        if spent > limit + debt:
            yield f"{key}: {spent} are spent at the end, the limit is {limit} and {debt} are owed"


def over_in_between(
    key: QuotaKey,
    limit: int,
    ops: Sequence[Op],
    lines: Iterable[UsageLine],
    lost: Sequence[Op],
    ended: Mapping[Region, float],
) -> Iterator[str]:
    """What callers certainly held at one time, beyond the limit and what was ever owed until then, or missing in a copy
    to which it was returned.
    """
    changes = [*_certain(ops, lost, ended), *((line.at, 0, line.delta) for line in lines if line.kind == "overdraft")]
    held = owed = worst = 0
    said: str | None = None
    # Of what happens at one time, what is given back and what is owed comes first: no false alarm.
    for at, units, overdraft in sorted(changes, key=lambda change: (change[0], -change[2], change[1])):
        held += units
        owed += overdraft
        if held - limit - owed > worst:
            worst = held - limit - owed
            said = f"{key}: callers held {held} at {at:.3f}, the limit is {limit} and {owed} were owed or lost"
    if said is not None:
        yield said


def _certain(ops: Sequence[Op], lost: Sequence[Op], ended: Mapping[Region, float]) -> Iterator[tuple[float, int, int]]:
    """When units became certainly held, and until when: from the answer of the reserve or commit to the sending of
    what ends it, or the hold's own end. What a failover took along ends with the server.
    """
    gone = {id(op) for op in lost}
    settles: dict[str, Op] = {op.name: op for op in ops if op.ask in {Ask.COMMIT, Ask.RELEASE}}
    returns: dict[str, Op] = {op.gives_back: op for op in ops if op.ask is Ask.ADJUST}
    for reserve in ops:
        if reserve.ask is not Ask.RESERVE or reserve.answer is not Answer.DONE or reserve.reservation_id is None:
            continue
        assert reserve.answered_at is not None
        end = ended.get(reserve.region, float("inf"))
        settle = settles.get(reserve.reservation_id)
        until = reserve.expires_at
        if settle is not None:
            until = min(until, settle.asked_at)
        if id(reserve) in gone or (settle is not None and id(settle) in gone):
            until = min(until, end)
        if until > reserve.answered_at:
            yield reserve.answered_at, reserve.amount, 0
            yield until, -reserve.amount, 0
        if settle is None or settle.ask is not Ask.COMMIT or settle.answer is not Answer.DONE:
            continue
        # From the moment it was asked for it was held in either state, unless the hold ended before the answer.
        assert settle.answered_at is not None
        since = settle.asked_at if settle.answered_at < reserve.expires_at else settle.answered_at
        given_back = returns.get(reserve.reservation_id)
        until = float("inf") if given_back is None else given_back.asked_at
        if id(reserve) in gone or id(settle) in gone:
            if end < until < float("inf"):
                # The copy knew nothing of these units, and has taken what was returned off somebody else's.
                yield until, 0, settle.amount
            until = min(until, end)
        if until > since:
            yield since, settle.amount, 0
            yield until, -settle.amount, 0
