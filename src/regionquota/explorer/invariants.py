"""What the explorer holds a run to, and how it says that a run broke it."""

from enum import StrEnum


class Invariant(StrEnum):
    """The letters of `docs/ablations.md`; A and B as everywhere in this project."""

    ADDS_UP = "A"
    """pool + retired + slices = limit, in every document."""
    OWNED = "B"
    """No region that admits holds more in Postgres than it owns in etcd."""
    PROMISE = "C"
    """In each period all regions together hold, and spend but for recorded debt, no more than the largest limit."""
    BALANCES = "D"
    """Every counter adds up; what is reserved is what the open holds say; the ledgers replay to it."""
    ONCE = "E"
    """Nothing is settled, adjusted, metered or held for twice; every acknowledged effect is in the ledger."""
    ANSWER = "F"
    """Who asks is answered for what was asked, under that id."""
    STATES = "G"
    """Reservations change by the table only, end in their time only, and belong to one operation."""
    TIME = "H"
    """Epochs, revisions, and versions of limits never fall; no more leaks than the refill allows."""
    DEBT = "I"
    """While anything is owed nothing is admitted."""
    LEADER = "J"
    """Nothing is written by a coordinator that no longer leads."""
    FROZEN = "K"
    """No coordinator names a region that it has read is frozen; a region thaws when it has caught up."""
    REST = "L"
    """Once faults stop, everything that can be used can be used."""
    TRUST = "M"
    """Nothing is admitted in an incarnation of a database that was not compared with etcd."""


class Violation(Exception):  # noqa: N818 - reads as a sentence where it is raised
    def __init__(self, invariant: Invariant, said: str) -> None:
        super().__init__(f"{invariant}: {said}")
        self.invariant = invariant
