"""Past versions of an allocation, for replay and audit."""

import asyncio
from collections.abc import Sequence

from regionquota.adapters.etcd.client import EtcdClient
from regionquota.core.quota import QuotaKey
from regionquota.errors import EtcdUnavailable
from regionquota.ports import Stored


async def history(
    client: EtcdClient, key: QuotaKey, after: int, upto: int, *, deadline_s: float = 10.0
) -> Sequence[Stored]:
    """All versions of one document written after revision `after`, up to and including `upto`, in order.

    Empty where the document does not exist at `upto`. Raises `CompactedError` when etcd no longer has them, and
    `EtcdUnavailable` at the deadline or for a version that cannot be read: no version is left out.
    """
    try:
        async with asyncio.timeout(deadline_s):
            return await _collect(client, key, after, upto)
    except TimeoutError as error:
        raise EtcdUnavailable(
            f"the history of {key} up to revision {upto} took longer than {deadline_s:g} s"
        ) from error


async def _collect(client: EtcdClient, key: QuotaKey, after: int, upto: int) -> Sequence[Stored]:
    document = client.allocations.key_of(key)
    last = await client.gateway.get(document, revision=upto)
    versions: list[Stored] = []
    if last is None or last.revision <= after:
        return versions
    async with client.gateway.watch(document, b"", after) as changes:
        while not versions or versions[-1].revision < last.revision:
            versions += map(client.allocations.stored, await changes.read())
    return [version for version in versions if version.revision <= upto]
