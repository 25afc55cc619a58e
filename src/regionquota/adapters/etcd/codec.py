"""What the documents in etcd look like: compact JSON, amounts as integers only.

Regions of different releases read the same documents. A field that a release does not know is passed over (and
lost when it writes), a new one must have a default here; what cannot be had that way takes a higher `FORMAT`,
which older releases refuse to read.
"""

from collections.abc import Container, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import quote

import msgspec
import structlog
from msgspec import Meta

from regionquota.core.alerts import Mark
from regionquota.core.allocation import UNLIMITED, Allocation, Move, Retired, VersionedLimit
from regionquota.core.demand import Demand
from regionquota.core.eviction import Eviction
from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.periods import TIMELESS
from regionquota.core.policy import DEFAULT_POLICY, QuotaPolicy
from regionquota.core.quota import MAX_AMOUNT, MAX_IDENTIFIER_BYTES, MAX_WEIGHT, Kind, QuotaKey, Region, bucket_of
from regionquota.errors import RegionQuotaError, UnreadableDocument
from regionquota.ports import Frozen, FrozenBy, Presence, RegionRecord, RegionStatus, Suspension

_log = structlog.get_logger(__name__)
FORMAT: Final = 1

MAX_WHY: Final = 10_000
"""Characters, with room for what later releases allow."""
LAST_INSTANT: Final = 253_402_300_799
"""The end of the year 9999: what calendars can show."""

LARGEST_REPORT: Final = 1024 * 1024
"""etcd refuses requests above 1.5 MiB."""


# Bounded where somebody reckons with it: a document that nobody of ours wrote must not stop those who read it.
Units = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Revision = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
Epoch = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Foreseen = Annotated[float, Meta(ge=0, le=1e18)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_IDENTIFIER_BYTES, pattern=r"^[^\x00-\x1f\x7f-\x9f]+\Z")]


class _Limit(msgspec.Struct):
    amount: Units | Literal["unlimited"] | None
    version: int


class _Move(msgspec.Struct, rename={"source": "from", "target": "to"}):
    id: Name
    source: Name
    target: Name | None
    amount: Units
    requested_at: float = 0.0
    believed: Units = 0


class _Retired(msgspec.Struct, omit_defaults=True):
    units: Units
    epoch: Epoch
    unknown: Units = 0


class Document(msgspec.Struct):
    v: int


class _Allocation(Document):
    kind: Kind
    plan: _Limit | None
    override: _Limit | None
    limit: int
    pool: int
    retired: dict[Name, _Retired] | Literal[0]
    slices: dict[Name, Units]
    moves: list[_Move]
    epoch: Epoch
    policy: QuotaPolicy = DEFAULT_POLICY


class _Frozen(msgspec.Struct):
    by: FrozenBy
    since: float
    why: str


class _Eviction(msgspec.Struct):
    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    at: float
    attestation: str
    blind: bool = False


class _Region(Document):
    name: Name
    weight: Annotated[int, Meta(ge=0, le=MAX_WEIGHT)]
    status: RegionStatus
    frozen: _Frozen | None
    eviction: _Eviction | None = None


class _Presence(Document):
    region: str
    instance: str
    url: str
    synchronised: Revision


class _Suspension(Document):
    since: Annotated[float, Meta(ge=0, le=LAST_INSTANT)]
    why: Annotated[str, Meta(max_length=MAX_WHY, pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]


class _Mark(Document):
    threshold: Annotated[int, Meta(ge=1)]
    epoch: Epoch
    at: float


class _Row(msgspec.Struct, array_like=True):
    """An array: field names would be most of a report. New fields go to the end."""

    tenant: str
    resource: str
    scope: str
    slice: Units
    used: Units
    reserved: Units
    granted: Units
    freed: Units
    denied: Units
    seconds: Annotated[float, Meta(ge=0, le=1e9)]
    epoch: Epoch = TIMELESS
    largest: Units = 0
    denied_high: Units = 0
    denied_low: Units = 0
    expected: Foreseen = 0.0
    deviation: Foreseen = 0.0


class _Report(Document):
    region: str
    rows: list[_Row]
    at: Annotated[float, Meta(ge=0, le=1e12)] = 0.0


class _ReportOut(Document):
    region: str
    rows: list[msgspec.Raw]
    at: float


_encoder: Final = msgspec.json.Encoder()
_allocations: Final = msgspec.json.Decoder(_Allocation)
_regions: Final = msgspec.json.Decoder(_Region)
_presences: Final = msgspec.json.Decoder(_Presence)
_marks: Final = msgspec.json.Decoder(_Mark)
_suspensions: Final = msgspec.json.Decoder(_Suspension)
_reports: Final = msgspec.json.Decoder(_Report)

D = TypeVar("D", bound=Document)


def decode(decoder: msgspec.json.Decoder[D], key: bytes, raw: bytes) -> D:
    try:
        document = decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(key, error) from error
    if not 1 <= document.v <= FORMAT:
        raise unreadable(key, f"it has format {document.v}, this release reads up to {FORMAT}")
    return document


def check_owner(key: bytes, *names: str) -> None:
    """A document speaks only for whom its key names."""
    if not key.endswith("/".join(quote(name, safe="") for name in ("", *names)).encode()):
        raise unreadable(key, f"it speaks for {' '.join(names)}")


def unreadable(key: bytes, why: object) -> UnreadableDocument:
    return UnreadableDocument(f"cannot read the document {key.decode(errors='replace')} in etcd: {why}")


def encode_allocation(allocation: Allocation) -> bytes:
    document = _Allocation(
        v=FORMAT,
        kind=allocation.kind,
        plan=_limit_out(allocation.plan),
        override=_limit_out(allocation.override),
        limit=allocation.limit,
        pool=allocation.pool,
        retired={name: _Retired(gone.units, gone.epoch, gone.unknown) for name, gone in allocation.retired.items()}
        or 0,
        slices=dict(allocation.slices),
        moves=[
            _Move(move.id, move.source, move.target, move.amount, move.requested_at, move.believed)
            for move in allocation.moves
        ],
        epoch=allocation.epoch,
        policy=policy_out(allocation.policy),
    )
    return _encoder.encode(document)


def policy_out(policy: QuotaPolicy) -> Any:
    """To be encoded in its place: what came with later releases is left out where it changes nothing."""
    plain = msgspec.to_builtins(policy)
    for name in _LATER:
        if plain[name] == _DEFAULTS[name]:
            del plain[name]
    return plain


_DEFAULTS: Final = msgspec.to_builtins(DEFAULT_POLICY)
_LATER: Final = ("regions", "normal_fill_percent", "low_fill_percent")


def decode_allocation(key: bytes, raw: bytes) -> Allocation:
    """Raises `UnreadableDocument`, also for parts that do not add up to the limit."""
    document = decode(_allocations, key, raw)
    try:
        return Allocation(
            kind=document.kind,
            plan=_limit_in(document.plan),
            override=_limit_in(document.override),
            limit=document.limit,
            pool=document.pool,
            retired={
                name: Retired(gone.units, gone.epoch, gone.unknown) for name, gone in (document.retired or {}).items()
            },
            slices=document.slices,
            moves=[
                Move(move.id, move.source, move.target, move.amount, move.requested_at, move.believed)
                for move in document.moves
            ],
            epoch=document.epoch,
            policy=document.policy,
        )
    except RegionQuotaError as error:
        raise unreadable(key, error) from error


def _limit_out(limit: VersionedLimit | None) -> _Limit | None:
    if limit is None:
        return None
    return _Limit("unlimited" if limit.amount is UNLIMITED else limit.amount, limit.version)


def _limit_in(limit: _Limit | None) -> VersionedLimit | None:
    if limit is None:
        return None
    return VersionedLimit(UNLIMITED if limit.amount == "unlimited" else limit.amount, limit.version)


def encode_region(record: RegionRecord) -> bytes:
    gone = record.eviction
    eviction = None if gone is None else _Eviction(gone.number, gone.at, gone.attestation, gone.blind)
    document = _Region(FORMAT, record.name, record.weight, record.status, _frozen_out(record.frozen), eviction)
    return _encoder.encode(document)


def decode_region(key: bytes, raw: bytes) -> RegionRecord:
    document = decode(_regions, key, raw)
    check_owner(key, document.name)
    gone = document.eviction
    eviction = None if gone is None else Eviction(gone.number, gone.at, gone.attestation, gone.blind)
    return RegionRecord(document.name, document.weight, document.status, _frozen_in(document.frozen), eviction)


def _frozen_out(frozen: Frozen | None) -> _Frozen | None:
    return None if frozen is None else _Frozen(frozen.by, frozen.since, frozen.why)


def _frozen_in(frozen: _Frozen | None) -> Frozen | None:
    return None if frozen is None else Frozen(frozen.by, frozen.since, frozen.why)


def encode_presence(presence: Presence) -> bytes:
    return _encoder.encode(_Presence(FORMAT, presence.region, presence.instance, presence.url, presence.synchronised))


def decode_presence(key: bytes, raw: bytes) -> Presence:
    document = decode(_presences, key, raw)
    check_owner(key, document.region, document.instance)
    return Presence(document.region, document.instance, document.url, document.synchronised)


def encode_suspension(suspension: Suspension) -> bytes:
    return _encoder.encode(_Suspension(FORMAT, suspension.since, suspension.why))


def decode_suspension(tenant: str, key: bytes, raw: bytes) -> Suspension:
    """A document that cannot be read still suspends: to lift it by mistake would be worse."""
    try:
        document = decode(_suspensions, key, raw)
    except UnreadableDocument as error:
        _log.error("unreadable suspension", tenant=tenant, why=str(error))
        return Suspension(tenant, 0.0, "its document in etcd cannot be read")
    return Suspension(tenant, document.since, document.why)


def encode_mark(mark: Mark) -> bytes:
    return _encoder.encode(_Mark(FORMAT, mark.threshold, mark.epoch, mark.at))


def decode_mark(key: bytes, raw: bytes) -> Mark:
    document = decode(_marks, key, raw)
    return Mark(document.threshold, document.epoch, document.at)


def encode_report(region: Region, demand: Sequence[Demand]) -> Iterator[bytes]:
    """All said at one time. One document, or as many as keep below `LARGEST_REPORT` bytes each."""
    rows: list[msgspec.Raw] = []
    size = 0
    at = demand[0].at if demand else 0.0
    for row in map(_row_out, demand):
        if rows and size + len(row) > LARGEST_REPORT:
            yield _encoder.encode(_ReportOut(FORMAT, region, rows, at))
            rows, size = [], 0
        rows.append(msgspec.Raw(row))
        size += len(row) + 1
    yield _encoder.encode(_ReportOut(FORMAT, region, rows, at))


def decode_report(key: bytes, raw: bytes, buckets: Container[int] = ALL_BUCKETS) -> tuple[Region, Sequence[Demand]]:
    """What it says of tenants in `buckets`."""
    document = decode(_reports, key, raw)
    return document.region, [
        Demand(
            key=QuotaKey(row.tenant, row.resource, row.scope),
            slice=row.slice,
            used=row.used,
            reserved=row.reserved,
            granted=row.granted,
            freed=row.freed,
            denied=row.denied,
            seconds=row.seconds,
            epoch=row.epoch,
            largest=row.largest,
            at=document.at,
            denied_high=row.denied_high,
            denied_low=row.denied_low,
            expected=row.expected,
            deviation=row.deviation,
        )
        for row in document.rows
        if bucket_of(row.tenant) in buckets
    ]


def _row_out(demand: Demand) -> bytes:
    row = _Row(
        demand.key.tenant, demand.key.resource, demand.key.scope,
        demand.slice, demand.used, demand.reserved,
        demand.granted, demand.freed, demand.denied, demand.seconds, demand.epoch, demand.largest,
        demand.denied_high, demand.denied_low,
        demand.expected, demand.deviation,
    )  # fmt: skip
    return _encoder.encode(row)
