"""One watch on etcd, from a revision to its end.

etcd3aio's own watch reconnects: it may then skip events, and jumps over a compaction without a word.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
from etcd3aio._protobuf import WatchCreateRequest, WatchRequest, WatchStub

from regionquota.adapters.etcd.deadline import answered
from regionquota.errors import EtcdUnavailable
from regionquota.ports import CompactedError

# A member that has lost its cluster ends the stream instead of leaving it open and silent.
NEEDS_LEADER: Final = (("hasleader", "true"),)
DELETE: Final = 1


@dataclass(frozen=True, slots=True)
class Change:
    """`value` None: deleted."""

    key: bytes
    revision: int
    value: bytes | None


class Changes:
    """Never reconnects, so nothing is skipped. Must be closed."""

    def __init__(
        self, stub: WatchStub, key: bytes, range_end: bytes, after: int, *, timeout_s: float, silence_s: float
    ) -> None:
        """`timeout_s` is for the first answer. Then etcd is asked for a sign of life in time, and counts as
        unavailable when nothing was heard for `silence_s`.
        """
        self._after = after
        self._patience = timeout_s
        self._silence_s = silence_s
        create = WatchCreateRequest(key=key, range_end=range_end, start_revision=after + 1, fragment=True)
        self._call = stub.Watch(_requests(create, silence_s / 3), metadata=NEEDS_LEADER)

    def close(self) -> None:
        self._call.cancel()

    async def read(self) -> Sequence[Change]:
        """The next changes of one or more whole revisions, in order. Not to be called again once it has raised."""
        events: list[Any] = []
        complete = False
        while not (complete and events):
            response = await self._response()
            events += response.events
            complete = not response.fragment
        return [
            Change(event.kv.key, event.kv.mod_revision, None if event.type == DELETE else event.kv.value)
            for event in events
        ]

    async def _response(self) -> Any:
        async with answered("a watch", self._patience):
            response = await self._call.read()
        self._patience = self._silence_s
        if response is grpc.aio.EOF:
            raise EtcdUnavailable("etcd ended a watch")
        if response.compact_revision:
            raise CompactedError(
                f"revision {self._after + 1} was compacted: etcd's history begins at {response.compact_revision}"
            )
        if response.canceled:
            raise EtcdUnavailable(f"etcd cancelled a watch: {response.cancel_reason}")
        return response


async def _requests(create: WatchCreateRequest, interval_s: float) -> AsyncIterator[WatchRequest]:
    yield WatchRequest(create_request=create)
    sign_of_life = WatchRequest()
    sign_of_life.progress_request.SetInParent()
    while True:
        await asyncio.sleep(interval_s)
        yield sign_of_life
