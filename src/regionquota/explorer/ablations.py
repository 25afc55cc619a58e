"""Every safeguard, and what happens without it: each switch takes out one, in this process, and nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final, TypeAlias

from regionquota.explorer.ablated import failover, ledger, lost, protocol
from regionquota.explorer.invariants import Invariant, Violation
from regionquota.explorer.logs import quiet
from regionquota.explorer.run import run, script
from regionquota.explorer.starts import starts

Patch: TypeAlias = tuple[Any, str, Any]
"""Where, under which name, and what stands there instead."""
RUNS_TO_FIND: Final = 60_000


@dataclass(frozen=True, slots=True)
class Ablation:
    """A switch; `safeguard` says what holds as long as it is on."""

    name: str
    safeguard: str
    patches: Sequence[Patch]
    shows: Invariant | None = None
    """What it is there for, where less is broken on the way."""
    only_where: str = ""
    """The flag of a script without which nobody can miss it."""

    def shown_by(self, found: Violation | None) -> bool:
        return found is not None and self.shows in (None, found.invariant)


@dataclass(frozen=True, slots=True)
class Missed:
    """The first seed that shows it, and what it showed."""

    ablation: Ablation
    seed: int
    invariant: Invariant
    said: str


SHOWS: Final = {
    "older-revision": Invariant.OWNED,
    "mod-revision": Invariant.OWNED,
    "epoch-guard": Invariant.PROMISE,
    "epoch-of-hand-over": Invariant.PROMISE,
    "decrease-first": Invariant.OWNED,
    "raise-last": Invariant.OWNED,
    "given-is-given": Invariant.OWNED,
    "epoch-never-falls": Invariant.TIME,
    "backwards-noticed": Invariant.OWNED,
    "standing-compared": Invariant.OWNED,
    "revisions-forgotten": Invariant.OWNED,
}
_ABLATED: Final = (
    (protocol.ABLATED, ""),
    (failover.ABLATED, "fails_over"),
    (lost.ABLATED, "loses_etcd"),
    (ledger.ABLATED, ""),
)
ABLATIONS: Final[Mapping[str, Ablation]] = {
    name: Ablation(name, safeguard, patches, SHOWS.get(name), only_where)
    for group, only_where in _ABLATED
    for name, safeguard, *patches in group
}


@contextmanager
def without(ablation: Ablation) -> Iterator[None]:
    """The start states are made with all safeguards in place."""
    starts()
    known = [(where, name, where.__dict__[name]) for where, name, _ in ablation.patches]
    for patch in ablation.patches:
        setattr(*patch)
    try:
        with quiet():
            yield
    finally:
        for patch in known:
            setattr(*patch)


def look(ablation: Ablation, seed: int) -> Missed | None:
    """What that seed shows without the safeguard."""
    with without(ablation):
        found = run(script(seed)).violation
    return None if found is None else Missed(ablation, seed, found.invariant, str(found))


def find(ablation: Ablation, runs: int = RUNS_TO_FIND) -> Missed | None:
    """By the first seed that shows it."""
    with without(ablation):
        for seed in _seeds(ablation, runs):
            found = run(script(seed)).violation
            if found is not None and ablation.shown_by(found):
                return Missed(ablation, seed, found.invariant, str(found))
    return None


def _seeds(ablation: Ablation, runs: int) -> Iterator[int]:
    flag = ablation.only_where
    return islice((seed for seed in count() if not flag or getattr(script(seed), flag)), runs)


def document(missed: Sequence[Missed]) -> str:
    """docs/ablations.md."""
    invariants = [f"| {one} | {(_MEANING[one])} |" for one in Invariant]
    rows = [f"| `{one.ablation.name}` | {one.ablation.safeguard} | {one.seed} | {one.invariant} |" for one in missed]
    return "\n".join(
        [
            _HEAD,
            "| letter | what must hold |",
            "|---|---|",
            *invariants,
            "",
            "| switch | the safeguard that is off | seed | broken |",
            "|---|---|---:|---|",
            *rows,
            "",
        ]
    )


_HEAD: Final = """# Without it

Each row takes one safeguard out of the product, within the explorer's process, and names the first seed of
`regionquota explore` that shows what it is for: `regionquota explore --ablate SWITCH` says how. The table is written by
`make ablations`; a test runs every seed again, and finds the table as it stands here.
"""

_MEANING: Final = {
    Invariant.ADDS_UP: "pool + retired + slices = limit, in every document",
    Invariant.OWNED: "no region that admits holds more in Postgres than it owns in etcd",
    Invariant.PROMISE: "in each period all regions together hold, and spend but for recorded debt, no more than the "
    "largest limit in force",
    Invariant.BALANCES: "every counter adds up, its holds are what is reserved, its ledgers replay to it; nothing "
    "that the product asserts is false",
    Invariant.ONCE: "nothing has its effect twice, and what was acknowledged has it",
    Invariant.ANSWER: "who asks is answered for what was asked",
    Invariant.STATES: "reservations change by the table, in their time, for one operation",
    Invariant.TIME: "periods and versions never fall; no more leaks than the refill allows",
    Invariant.DEBT: "nothing is admitted while anything is owed",
    Invariant.LEADER: "nothing is written by a coordinator that no longer leads",
    Invariant.FROZEN: "no round names a region that it read as frozen; a region thaws when it has caught up",
    Invariant.REST: "once faults stop, everything that can be used can be used",
    Invariant.TRUST: "nothing is admitted in a database that may lack commits",
}
