"""Every call that is made to etcd: one deadline, one translation of errors, one member at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from etcd3aio._protobuf import Compare, RequestOp, WatchStub
from etcd3aio.kv import KVService, prefix_range_end
from etcd3aio.lease import LeaseService

from regionquota.adapters.etcd.changes import Changes
from regionquota.adapters.etcd.deadline import answered
from regionquota.core.history import Seen, Sight
from regionquota.errors import EtcdUnavailable, WentBackwards
from regionquota.ports import CompactedError, Fence

PAGE: Final = 1000

T = TypeVar("T")


class Member:
    """One endpoint, and etcd3aio's services over its channel. They repeat nothing."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel: Final = channel
        self.kv: Final = KVService(channel, max_attempts=1)
        self.leases: Final = LeaseService(channel, max_attempts=1)
        self.watches: Final = WatchStub(channel)


@dataclass(frozen=True, slots=True)
class Entry:
    key: bytes
    value: bytes
    created: int
    revision: int
    lease: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a transaction. `entry` is what the failure branch found, if it looked and there was something."""

    succeeded: bool
    revision: int
    entry: Entry | None = None


class Gateway:
    """Calls go to one member until it fails one; the next call goes to the next. No call is made twice.

    Each endpoint has a channel of its own, since one gRPC channel takes either one host name or several
    addresses of one family, and checks one server name in all certificates.

    Once etcd has gone back behind what was `seen` of it, calls raise `WentBackwards`, but those made `regardless`.
    """

    def __init__(
        self, channels: Sequence[grpc.aio.Channel], *, timeout_s: float, silence_s: float, seen: Seen | None = None
    ) -> None:
        self._members = [Member(channel) for channel in channels]
        self._current = 0
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self.seen: Final = seen or Seen()

    async def close(self) -> None:
        for member in self._members:
            await member.channel.close(grace=None)

    async def get(self, key: bytes, revision: int = 0, *, regardless: bool = False) -> Entry | None:
        """Linearizable; as of `revision` if that is not 0."""
        answer = await self._linearizable(
            f"a read of {key.decode()}", lambda member: member.kv.get(key, revision=revision), regardless
        )
        return _entry(answer.kvs[0]) if answer.kvs else None

    async def get_with(self, key: bytes, later: bytes) -> tuple[Entry | None, Entry | None]:
        """As of one revision at which both were so. Not as a transaction: a full etcd refuses those."""
        while True:
            one, two = await asyncio.gather(self._get(key), self._get(later))
            while two.header.revision < one.header.revision:
                two = await self._get(later)
            first, second = (_entry(answer.kvs[0]) if answer.kvs else None for answer in (one, two))
            if second is None or second.revision <= one.header.revision:
                return first, second

    async def _get(self, key: bytes) -> Any:
        return await self._linearizable(f"a read of {key.decode()}", lambda member: member.kv.get(key))

    async def scan(
        self, prefix: bytes, *, end: bytes | None = None, regardless: bool = False, page: int = PAGE
    ) -> tuple[int, Sequence[Entry]]:
        """All entries as of one revision, so many at a time that answers stay below gRPC's limit.

        `end`: up to that key instead of all that begin with `prefix`.
        """
        end = end or prefix_range_end(prefix)
        first = await self._page(prefix, end, 0, regardless, page)
        revision: int = first.header.revision
        entries = [_entry(kv) for kv in first.kvs]
        more = first.more
        while more:
            try:
                more_of_it = await self._page(entries[-1].key + b"\0", end, revision, regardless, page)
            except CompactedError as error:
                raise EtcdUnavailable(f"etcd was compacted while {prefix.decode()} was listed: list again") from error
            entries += map(_entry, more_of_it.kvs)
            more = more_of_it.more
        return revision, entries

    async def put(self, key: bytes, value: bytes, lease: int) -> None:
        await self._linearizable(f"a write of {key.decode()}", lambda member: member.kv.put(key, value, lease))

    async def swap(
        self, key: bytes, revision: int, value: bytes, fence: Fence | None, *, regardless: bool = False
    ) -> int | None:
        """Put if the entry is at `revision` (0: is none) and `fence` holds; the new revision, or None."""
        return await self.change(key, revision, KVService.txn_op_put(key, value), fence, regardless=regardless)

    async def change(
        self, key: bytes, revision: int, operation: RequestOp, fence: Fence | None, *, regardless: bool = False
    ) -> int | None:
        """As `swap`, for any one operation."""
        outcome = await self.transact(key, unchanged(key, revision, fence), [operation], regardless=regardless)
        return outcome.revision if outcome.succeeded else None

    async def put_parts(
        self, under: bytes, entries: Sequence[tuple[bytes, bytes]], lease: int = 0, *, regardless: bool = False
    ) -> None:
        """At least one, one by one, in the order of their keys; the last takes away what is behind it `under` that."""
        for number, (key, value) in enumerate(entries):
            writes = [KVService.txn_op_put(key, value, lease=lease)]
            if number == len(entries) - 1:
                writes.append(KVService.txn_op_delete(key + b"\0", range_end=prefix_range_end(under)))
            await self.transact(key, (), writes, regardless=regardless)

    async def delete(self, key: bytes) -> bool:
        """Whatever revision it is at. False: there is no such entry."""
        compare = Compare(result=Compare.GREATER, target=Compare.CREATE, key=key, create_revision=0)
        outcome = await self.transact(key, [compare], [KVService.txn_op_delete(key)])
        return outcome.succeeded

    async def transact(
        self,
        key: bytes,
        compares: Sequence[Compare],
        success: Sequence[RequestOp],
        failure: Sequence[RequestOp] = (),
        *,
        regardless: bool = False,
    ) -> Outcome:
        """`failure` may be one read; `key` stands in messages."""
        answer = await self._linearizable(
            f"a write of {key.decode()}", lambda member: member.kv.txn(compares, success, failure), regardless
        )
        found = [kv for response in answer.responses for kv in response.response_range.kvs]
        return Outcome(answer.succeeded, answer.header.revision, _entry(found[0]) if found else None)

    async def grant_lease(self, ttl_s: int) -> int:
        answer = await self._ask("for a lease", lambda member: member.leases.grant(ttl_s))
        lease: int = answer.ID
        return lease

    async def keep_lease(self, lease: int) -> bool:
        """False: etcd does not know it any more."""
        answer = await self._ask("to keep a lease", lambda member: _keep_alive(member, lease))
        return bool(answer.TTL > 0)

    async def revoke_lease(self, lease: int) -> None:
        await self._ask("to revoke a lease", lambda member: member.leases.revoke(lease))

    async def compact(self, revision: int) -> None:
        """Forget the history before `revision`. For tests and operators: a cluster is set to do it by itself."""
        await self._ask("for compaction", lambda member: member.kv.compact(revision, physical=True))

    @asynccontextmanager
    async def watch(self, key: bytes, range_end: bytes, after: int) -> AsyncIterator[Changes]:
        """Of all keys from `key` up to `range_end` (empty: of `key` alone)."""
        member = self._members[self._current]
        try:
            async with answered("a watch", self._timeout_s):
                changes = Changes(
                    member.watches, key, range_end, after, timeout_s=self._timeout_s, silence_s=self._silence_s
                )
            with closing(changes):
                yield changes
        except EtcdUnavailable:
            self._leave(member)
            raise

    async def _page(self, start: bytes, end: bytes, revision: int, regardless: bool, page: int) -> Any:
        return await self._linearizable(
            f"a list from {start.decode()}",
            lambda member: member.kv.get(start, end, revision=revision, limit=page),
            regardless,
        )

    async def _linearizable(self, what: str, call: Callable[[Member], Awaitable[Any]], regardless: bool = False) -> Any:
        """A linearizable call, by whose answer etcd shows how far it has come."""
        seen = self.seen
        since = seen.sight
        self._refuse_backwards(regardless)
        answer = await self._ask(what, call)
        seen.note(since, Sight(answer.header.cluster_id, answer.header.revision))
        self._refuse_backwards(regardless)
        return answer

    def _refuse_backwards(self, regardless: bool) -> None:
        if self.seen.broken is not None and not regardless:
            raise WentBackwards(
                f"etcd went backwards ({self.seen.broken}): nothing moves until regionquota region recover"
            )

    async def _ask(self, what: str, call: Callable[[Member], Awaitable[T]]) -> T:
        member = self._members[self._current]
        try:
            async with answered(what, self._timeout_s):
                return await call(member)
        except EtcdUnavailable:
            self._leave(member)
            raise

    def _leave(self, member: Member) -> None:
        # Several calls may fail on one member: only the first moves on.
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)


def at_revision(key: bytes, revision: int) -> Compare:
    """0: there is no such entry."""
    return Compare(result=Compare.EQUAL, target=Compare.MOD, key=key, mod_revision=revision)


def unchanged(key: bytes, revision: int, fence: Fence | None) -> list[Compare]:
    """As `at_revision`, and `fence` holds."""
    compares = [at_revision(key, revision)]
    if fence is not None:
        compares.append(KVService.txn_compare_create_revision(fence.key, fence.create_revision))
    return compares


def none_under(prefix: bytes) -> Compare:
    """There is no entry whose key begins so."""
    # Of a range each entry has to pass; a range without any is compared as if it were one that was never made.
    end = prefix_range_end(prefix)
    return Compare(result=Compare.EQUAL, target=Compare.CREATE, key=prefix, range_end=end, create_revision=0)


async def _keep_alive(member: Member, lease: int) -> Any:
    stream = member.leases.keep_alive(lease)
    try:
        answer = await stream.read()
    finally:
        stream.cancel()
    if answer is grpc.aio.EOF:
        raise EtcdUnavailable("etcd closed the connection without keeping the lease")
    return answer


def _entry(kv: Any) -> Entry:
    return Entry(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)
