"""What each column and figure of regionquota explain means: in its --help, and in docs/operations.md."""

from typing import Final

COLUMNS: Final = {
    "slice": "units of the limit that the region owns: it admits that many by itself, asking nobody",
    "in use": "units of the slice that are used or held, as the region last reported; -: it reported nothing",
    "growth per s": "units granted per second, less those given back",
    "short per s": "units per second that did not fit when they were first asked for: what planners go by. Who waits "
    "(wait_ms) and is served counts here, and was not denied",
    "lasts": "seconds until the slice is full if growth and short go on; 0 s: it is full; -: nothing is asked for",
    "last denied": "how long ago a caller was told no; -: never since the region's server began; not heard: that "
    "server does not answer",
    "largest": "units of the largest single request in the last report; one that was short counts for 15 s. Once all "
    "have what they want, a region gets room for one more of it, whole or not at all",
    "wants": "units that are to last until the next round: what is in use, what growth and short add by then, and a "
    "margin for chance; no more than the limit",
    "next size": "units that the next plan aims at for the slice; small differences are not moved",
    "weight": "its part of what nobody needs, compared with the others' weights; 100 is usual",
    "expected per s": "units per second by which use will grow in the next two hours, going by the days before; "
    "-: nothing learnt",
}
FIGURES: Final = {
    "pool": "units of the limit that no region owns; a region that runs short claims from it by itself",
    "the pool is to hold": "units that rounds leave in the pool while everybody has what is wanted: fewer, the less "
    "busy minutes ask beyond the mean",
    "retired": "units that an evicted region owned: they count as spent until it is known that they are not",
    "round": "the coordinator plans once in coordinator.interval_s (10 s; 1 s in regionquota dev), and helps who runs "
    "short in between",
    "last denied at": "in quotes what the caller was told, with the limit and the slice of then; behind it what has "
    "changed since",
}
GLOSSARY: Final = COLUMNS | FIGURES


def epilog() -> str:
    """A line of its own for what a blank line ends."""
    lines = ["Columns and figures, in units of the quota:"]
    lines += [f"{name}: {meaning}" for name, meaning in GLOSSARY.items()]
    return "\n\n".join([*lines, "Example: regionquota explain acme vcpu · regionquota explain acme vcpu --json"])
