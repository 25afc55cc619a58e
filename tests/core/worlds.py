"""Random lives of a region's balances: every kind, state and enforcement, lines with parents, clocks that jump."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Final, TypeAlias

from msgspec.structs import replace as replace_struct
from tests.core.builders import adjust, allocation, at, move, reservation_name, reserve, unlimited

from regionquota.core.allocation import Allocation
from regionquota.core.commands import Charge, Command, Commit, Expire, Extend, Meter, Pledge, Release, Start
from regionquota.core.periods import Calendar, Period, epoch_of
from regionquota.core.policy import DEFAULT_POLICY, Enforcement, Priority, QuotaPolicy, Refill
from regionquota.core.quota import MAX_AMOUNT, Kind, QuotaKey
from regionquota.region.budgets import Budgets

BEGIN: Final = at(2026, 3, 28, 22, 30)
"""An hour and a half before the 29th, when Europe's summer time begins; three days before the month ends."""
LIMIT: Final = 1000

# The shorter of two jumps is far more frequent; a clock may also go back.
JUMPS: Final = (0.0, 0.5, 1.0, 7.0, 45.0, 61.0, -30.0, -4000.0, 1800.0, 3600.0, 86_400.0, 700_000.0)
AMOUNTS: Final = (1, 2, 3, 5, 8, 13, 40, 90, MAX_AMOUNT, MAX_AMOUNT // 2)

FILLS: Final = ((100, 100), (100, 80), (100, 33), (90, 50), (67, 67), (100, 0))
"""What requests of normal and of low priority may fill, in percent."""

_ROOTS: Final[Mapping[str, tuple[Kind, QuotaPolicy]]] = {
    "vcpu": (Kind.ALLOCATED, DEFAULT_POLICY),
    "hourly": (Kind.CONSUMABLE, QuotaPolicy(Calendar(Period.HOUR, "Asia/Kolkata"))),
    "daily": (Kind.CONSUMABLE, QuotaPolicy(Calendar(Period.DAY, "Europe/Berlin"))),
    "weekly": (Kind.CONSUMABLE, QuotaPolicy(Calendar(Period.WEEK, "America/Sao_Paulo"))),
    "monthly": (Kind.CONSUMABLE, QuotaPolicy(Calendar(Period.MONTH, "Pacific/Apia"))),
    "tokens": (Kind.RATE, QuotaPolicy(refill=Refill(7, 60, LIMIT))),
}


@dataclass(frozen=True)
class Batch:
    commands: Sequence[Command]


@dataclass(frozen=True)
class Heard:
    key: QuotaKey
    allocation: Allocation
    revision: int


@dataclass(frozen=True)
class Swept:
    most: int


Step: TypeAlias = Batch | Heard | Swept


class Life:
    """A sequence of steps and of the times at which they happen, the same for the same `seed`.

    One resource has a project with a guarantee, a part of the project, and a sibling; all are charged together. A
    `spreadable` one has no guarantees, and is no rate.
    """

    def __init__(self, seed: int, *, spreadable: bool = False) -> None:
        self._random = Random(seed)
        self.now = BEGIN
        self._names = count(1)
        self._revisions = count(10)
        self._reserved: list[str] = []
        self._lines: dict[str, tuple[QuotaKey, ...]] = {}
        resource = self._random.choice(list(_ROOTS)[: -1 if spreadable else None])
        self._kind, root = _ROOTS[resource]
        named = {
            "global": root,
            "project": replace(root, guarantee=0 if spreadable else self._random.choice([0, 200, LIMIT])),
            "part": replace(root, parent="project", guarantee=0 if spreadable else self._random.choice([0, 100])),
            "sibling": replace(root, guarantee=0 if spreadable else self._random.choice([0, 50, MAX_AMOUNT])),
        }
        self.policies = {
            QuotaKey("acme", resource, scope): replace(policy, **self._fills()) for scope, policy in named.items()
        }
        self._budgets = Budgets("eu", self.policies.get)

    @property
    def keys(self) -> Sequence[QuotaKey]:
        return list(self.policies)

    def steps(self, count: int) -> Iterator[Step]:
        """Each happens at `now`, as that is when it is taken."""
        for key in self.keys:
            yield self._heard(key, 100)
        for _ in range(count):
            yield self._next()

    def _next(self) -> Step:
        random = self._random
        if random.random() < 0.5:
            self.now += random.choice(JUMPS) if random.random() < 0.3 else random.choice(JUMPS[:5])
        kind = random.random()
        if kind < 0.12:
            return self._heard(random.choice(self.keys), random.choice([0, 1, 60, 100, 150, LIMIT]))
        if kind < 0.2:
            return Swept(random.choice([1000, 1000, 0]))
        commands = [self._command() for _ in range(random.choice([1, 1, 1, 2, 4]))]
        return Batch(commands)

    def _heard(self, key: QuotaKey, owned: int) -> Heard:
        """A policy that is amended at times, as `amend` would allow it."""
        random, policy = self._random, self.policies[key]
        if random.random() < 0.4:
            policy = replace(
                policy,
                enforcement=random.choice([Enforcement.HARD, Enforcement.HARD, Enforcement.SOFT, Enforcement.SHADOW]),
                enforced_percent=random.choice([100, 100, 100, 50, 0]),
                admission_open=random.random() < 0.9,
                max_single=random.choice([None, None, 50]),
                max_overdraft=random.choice([None, 20]),
                **self._fills(),
                generation=policy.generation + 1,
            )
            if policy.refill is not None and random.random() < 0.5:
                policy = replace(policy, refill=Refill(random.choice([1, 50]), random.choice([1, 600]), LIMIT))
            self.policies[key] = policy
        moves = [move("eu", "us", random.randint(1, 100))] if random.random() < 0.3 else []
        document = allocation(MAX_AMOUNT, kind=self._kind, policy=policy, moves=moves, eu=owned)
        document = replace_struct(
            document, epoch=epoch_of(self._kind, self.now, policy.calendar) - random.choice([0, 0, -1])
        )
        if random.random() < 0.1:
            document = unlimited(document)
        return Heard(key, document, next(self._revisions) - (5 if random.random() < 0.1 else 0))

    def _fills(self) -> Mapping[str, int]:
        normal, low = self._random.choice(FILLS)
        return {"normal_fill_percent": normal, "low_fill_percent": low}

    def _command(self) -> Command:
        random = self._random
        known = random.choice(self._reserved[-8:]) if self._reserved else reservation_name(0)
        seldom = ["start", "release", "expire", "extend", "adjust", "meter"]
        match random.choice(["reserve"] * 6 + ["commit"] * 4 + seldom):
            case "reserve":
                return self._reserve()
            case "commit":
                lines = self._lines.get(known, ())[1:]
                said = {key: self._amount() for key in lines if random.random() < 0.2}
                return Commit(known, random.choice([None, self._amount()]), said)
            case "start":
                return Start(known, random.choice(["one", "two"]))
            case "release":
                return Release(known)
            case "expire":
                return Expire(known)
            case "extend":
                return Extend(known, random.choice([5, 60]))
            case "adjust":
                return self._adjust()
            case _:
                return self._meter()

    def _amount(self) -> int:
        return self._random.choice(AMOUNTS if self._random.random() < 0.2 else AMOUNTS[:8])

    def _reserve(self) -> Command:
        random, name = self._random, reservation_name(next(self._names))
        first, *rest = self._budgets.complete([Charge(random.choice(self.keys), self._amount())])
        self._reserved.append(name)
        self._lines[name] = (first.key, *(line.key for line in rest))
        # One request in four is a repeat, of the same or of other content.
        request = f"request-{random.randint(1, 12)}" if random.random() < 0.25 else f"of-{name}"
        ttl, priority = random.choice([1, 10, 60, 4000]), random.choice(list(Priority))
        return reserve(first.amount, name=name, key=first.key, request=request, ttl=ttl, also=rest, priority=priority)

    def _adjust(self) -> Command:
        key, delta = self._random.choice(self.keys), self._amount() * self._random.choice([1, -1])
        return adjust(delta, request=f"adjust-{self._random.randint(1, 40)}", key=key, also=self._budgets.above(key))

    def _meter(self) -> Command:
        random, key = self._random, self._random.choice(self.keys)
        if random.random() < 0.3:
            child = next(key for key in self.keys if key.scope == "part")
            return Pledge(child, QuotaKey(child.tenant, child.resource, "project"))
        above = self._budgets.above(key)
        return Meter(key, "gateway", random.choice("ab"), random.randint(1, 30), random.randint(0, 60), above)
