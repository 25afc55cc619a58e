"""Every safeguard, and what happens without it: each switch takes out one, in this process, and nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from regionquota.explorer.ablated import ledger, protocol
from regionquota.explorer.invariants import Invariant
from regionquota.explorer.logs import quiet
from regionquota.explorer.run import run, script
from regionquota.explorer.starts import starts

Patch: TypeAlias = tuple[Any, str, Any]
"""Where, under which name, and what stands there instead."""
SEEDS_TO_FIND: Final = 60_000


@dataclass(frozen=True, slots=True)
class Ablation:
    """`stated` is the document, in `docs` or at the root, that says what the safeguard is for."""

    name: str
    safeguard: str
    patch: Patch


@dataclass(frozen=True, slots=True)
class Missed:
    """The first seed that shows it, and what it showed."""

    ablation: Ablation
    seed: int
    invariant: Invariant
    said: str


ABLATIONS: Final[Mapping[str, Ablation]] = {
    name: Ablation(name, safeguard, patch) for name, safeguard, patch in (*protocol.ABLATED, *ledger.ABLATED)
}


@contextmanager
def without(ablation: Ablation) -> Iterator[None]:
    """The start states are made with all safeguards in place."""
    starts()
    where, name, instead = ablation.patch
    known = where.__dict__[name]
    setattr(where, name, instead)
    try:
        with quiet():
            yield
    finally:
        setattr(where, name, known)


def look(ablation: Ablation, seed: int) -> Missed | None:
    """What that seed shows without the safeguard."""
    with without(ablation):
        found = run(script(seed)).violation
    return None if found is None else Missed(ablation, seed, found.invariant, str(found))


def find(ablation: Ablation, seeds: Sequence[int] = range(SEEDS_TO_FIND)) -> Missed | None:
    with without(ablation):
        for seed in seeds:
            found = run(script(seed)).violation
            if found is not None:
                return Missed(ablation, seed, found.invariant, str(found))
    return None


def table(missed: Sequence[Missed]) -> str:
    """As it stands in docs/ablations.md."""
    rows = [
        f"| `{one.ablation.name}` | {one.ablation.safeguard} | {one.seed} | {one.invariant} {one.invariant.name.lower()} |"
        for one in missed
    ]
    return "\n".join(["| switch | without | seed | broken |", "|---|---|---:|---|", *rows])


Finder: TypeAlias = Callable[[Ablation], Missed | None]
