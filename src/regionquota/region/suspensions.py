"""Follows which tenants are suspended, and remembers it for the time that etcd does not answer."""

from collections.abc import Mapping

import structlog

from regionquota.ports import Directory, Suspension, SuspensionStore

_log = structlog.get_logger(__name__)


class Suspensions:
    """As last heard of. `recall` before the first reserve is served: then a suspension outlives restarts and etcd."""

    def __init__(self, directory: Directory, store: SuspensionStore) -> None:
        self._directory = directory
        self._store = store
        self._known: Mapping[str, Suspension] = {}

    def why(self, tenant: str) -> str | None:
        """None: it is not suspended."""
        known = self._known.get(tenant)
        return None if known is None else known.why

    async def recall(self) -> None:
        """What the region's database remembers. Raises `StoreUnavailable`."""
        self._known = await self._store.recall()

    async def follow(self) -> None:
        """Hear of changes, obey them at once, and remember them. Raises `Unavailable`."""
        heard = await self._directory.suspensions()
        for tenant in heard.keys() - self._known.keys():
            _log.info("tenant suspended", tenant=tenant, why=heard[tenant].why)
        for tenant in self._known.keys() - heard.keys():
            _log.info("tenant resumed", tenant=tenant)
        self._known = heard
        # At every look, not only after a change: a slower server of this region may have put back what it had heard.
        await self._store.remember(heard)
