"""Collects what a scenario leaves behind, and judges it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from regionquota.audit import Verdict, audit
from regionquota.bootstrap.operator import Operator
from regionquota.chaos.books import Books, read_books
from regionquota.chaos.check import Failover, Findings, check
from regionquota.chaos.history import History
from regionquota.chaos.slices import Former, slice_differences
from regionquota.core.allocation import Allocation
from regionquota.core.quota import QuotaKey, Region
from regionquota.errors import EtcdUnavailable, UnreadableDocument
from regionquota.ports import CompactedError


@dataclass(slots=True)
class Revisions:
    """All revisions of each quota's allocation, read up to `upto`. `remember` before anything compacts them away."""

    keys: Sequence[QuotaKey]
    upto: int = 0
    known: dict[QuotaKey, list[tuple[int, Allocation]]] = field(default_factory=dict)
    former: Former | None = None
    gaps: list[str] = field(default_factory=list)

    async def remember(self, operator: Operator) -> None:
        """Raises `EtcdUnavailable`."""
        newest, _ = await operator.allocations.list()
        for key in self.keys:
            seen = self.known.setdefault(key, [])
            try:
                versions = await operator.history(key, self.upto, newest)
            except CompactedError:
                self.gaps.append(f"{key}: etcd has compacted revisions after {self.upto} before they were read")
                continue
            except UnreadableDocument as error:
                self.gaps.append(f"invariant A: etcd held an allocation of {key} that does not add up: {error}")
                continue
            seen += [(one.revision, one.allocation) for one in versions if one.allocation is not None]
        self.upto = newest

    async def begin_again(self, operator: Operator, ended_at: float) -> None:
        """Etcd has another history by now, whose revisions cannot be compared with those of the one before.

        Raises `EtcdUnavailable`.
        """
        self.former = Former(ended_at, self.known)
        self.upto, documents = await operator.allocations.list()
        self.known = {
            one.key: [(one.revision, one.allocation)]
            for one in documents
            if one.key in self.keys and one.allocation is not None
        }


@dataclass(frozen=True, slots=True)
class Verdicts:
    findings: Findings
    invariants: Sequence[str]
    audit: Sequence[str]
    revisions: int
    books: Mapping[Region, Books]

    @property
    def lines(self) -> Sequence[str]:
        return [
            *self.findings.all(),
            *(f"invariant: {line}" for line in self.invariants),
            *(f"audit: {line}" for line in self.audit),
        ]


async def judge(
    operator: Operator,
    dsns: Mapping[Region, str],
    history: History,
    revisions: Revisions,
    failovers: Mapping[Region, Failover],
) -> Verdicts:
    """To be called when nobody calls any more."""
    audited = [one async for one in audit(operator.allocations, operator.stores)]
    # Ledgers after the last revision: a decrease is in its ledger before the revision that gives the units away.
    await _remember(revisions, operator)
    books: dict[Region, Books] = {region: await read_books(dsn) for region, dsn in dsns.items()}
    limits = {
        key: max((allocation.limit for _, allocation in known), default=0) for key, known in revisions.known.items()
    }
    differences = slice_differences(revisions.known, books, failovers, former=revisions.former)
    return Verdicts(
        check(history.ops, books, limits, failovers),
        [*revisions.gaps, *differences],
        [
            f"{one.check}: {one.region or 'all'}: {one.difference}"
            for one in audited
            if one.verdict is not Verdict.HOLDS
        ],
        sum(len(known) for known in revisions.known.values()),
        books,
    )


def leave(
    directory: Path,
    history: History,
    verdicts: Verdicts,
    revisions: Revisions,
    failovers: Mapping[Region, Failover],
) -> None:
    """Everything that was judged, as JSON, for whoever wants to know how it came to be."""
    directory.mkdir(parents=True, exist_ok=True)
    allocations = {
        str(key): [
            {"revision": revision, "limit": one.limit, "pool": one.pool, "slices": dict(one.slices), "moves": one.moves}
            for revision, one in known
        ]
        for key, known in revisions.known.items()
    }
    for name, what in (
        ("history", history.ops),
        ("books", verdicts.books),
        ("dead", failovers),
        ("allocations", allocations),
    ):
        (directory / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(what)))


async def _remember(revisions: Revisions, operator: Operator) -> None:
    try:
        await revisions.remember(operator)
    except EtcdUnavailable as error:
        revisions.gaps.append(f"etcd cannot be read at the end: {error}")
