"""What the documents of a history and its recovery look like in etcd. As those in `codec`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from regionquota.adapters.etcd.codec import (
    FORMAT,
    LARGEST_REPORT,
    MAX_WHY,
    Document,
    Epoch,
    Name,
    Revision,
    Units,
    check_owner,
    decode,
    policy_out,
)
from regionquota.core.history import History, Phase, Standing
from regionquota.core.policy import QuotaPolicy
from regionquota.core.quota import Kind, QuotaKey
from regionquota.core.recovery import Stated, Statement


class _History(Document, omit_defaults=True):
    name: Name
    phase: Phase = Phase.RUNNING
    since: float = 0.0
    by: Annotated[str, Meta(max_length=MAX_WHY)] = ""
    why: Annotated[str, Meta(max_length=MAX_WHY)] = ""


class _Stated(msgspec.Struct, array_like=True):
    tenant: str
    resource: str
    scope: str
    kind: Kind
    limit: Units
    unlimited: bool
    policy: QuotaPolicy
    revision: Revision
    epoch: Epoch
    slice: Units
    in_use: Units


class _Part(Document):
    """One part of `parts`. A statement is complete once all parts that its last write names are there."""

    region: Name
    history: Name
    evictions: int
    evictions_before: int
    parts: int


class _Statement(_Part):
    rows: list[_Stated]
    trusted: bool = True


class _StatementOut(_Part):
    rows: list[msgspec.Raw]
    trusted: bool


_encoder: Final = msgspec.json.Encoder()
_histories: Final = msgspec.json.Decoder(_History)
_statements: Final = msgspec.json.Decoder(_Statement)


def encode_history(history: History) -> bytes:
    """Of a running one always the same bytes, for others to compare with."""
    return _encoder.encode(_History(FORMAT, history.name, history.phase, history.since, history.by, history.why))


def decode_history(key: bytes, raw: bytes) -> History:
    document = decode(_histories, key, raw)
    return History(document.name, document.phase, document.since, document.by, document.why)


def encode_statement(statement: Statement) -> Iterator[bytes]:
    """As many documents as keep each below `LARGEST_REPORT` bytes of rows."""
    standing = statement.standing
    parts = list(_split([_encoder.encode(_row(row)) for row in statement.stated]))
    for rows in parts:
        yield _encoder.encode(
            _StatementOut(
                FORMAT,
                statement.region,
                standing.history,
                standing.evictions,
                standing.evictions_before,
                len(parts),
                [msgspec.Raw(row) for row in rows],
                statement.is_trusted,
            )
        )


def _split(rows: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for number, row in enumerate(rows):
        if size + len(row) >= LARGEST_REPORT:
            yield rows[start:number]
            start, size = number, 0
        size += len(row) + 1
    yield rows[start:]


def decode_statement(documents: Sequence[tuple[bytes, bytes]]) -> Statement | None:
    """All parts that there are of one region's, in order. None: some are missing, or of another statement."""
    parts = [decode(_statements, key, raw) for key, raw in documents]
    first = parts[0]
    if len(parts) != first.parts:
        return None
    for part, (key, _) in zip(parts, documents, strict=True):
        check_owner(key, first.region, key.rsplit(b"/", 1)[1].decode())
        if _heads(part) != _heads(first):
            return None
    rows = [_unrow(row) for part in parts for row in part.rows]
    standing = Standing(first.history, first.evictions, first.evictions_before)
    return Statement(first.region, standing, rows, first.trusted)


def _heads(part: _Statement) -> tuple[object, ...]:
    return part.region, part.history, part.evictions, part.trusted


def owner_of(key: bytes) -> bytes:
    """Parts of one statement stand under one."""
    return key.rsplit(b"/", 1)[0]


def _row(one: Stated) -> _Stated:
    key = one.key
    return _Stated(
        key.tenant, key.resource, key.scope, one.kind, one.limit, one.unlimited, policy_out(one.policy),
        one.revision, one.epoch, one.slice, one.in_use,
    )  # fmt: skip


def _unrow(row: _Stated) -> Stated:
    return Stated(
        QuotaKey(row.tenant, row.resource, row.scope), row.kind, row.limit, row.unlimited, row.policy,
        row.revision, row.epoch, row.slice, row.in_use,
    )  # fmt: skip
