"""`Directory` over etcd: regions, and under leases signs of life, demand and leadership."""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Final

from etcd3aio.kv import KVService

from regionquota.adapters.etcd.codec import (
    decode_presence,
    decode_region,
    decode_report,
    decode_suspension,
    encode_presence,
    encode_region,
    encode_report,
    encode_suspension,
    unreadable,
)
from regionquota.adapters.etcd.gateway import Entry, Gateway, none_under, unchanged
from regionquota.adapters.etcd.keys import Keyspace
from regionquota.adapters.etcd.reading import Reader
from regionquota.core.demand import Demand
from regionquota.core.groups import ALL_BUCKETS, Leader, Leadership
from regionquota.core.quota import Region
from regionquota.errors import EtcdUnavailable
from regionquota.ports import (
    Fence,
    Presence,
    RegionRecord,
    Session,
    StoredRegion,
    Suspension,
)


class EtcdSession:
    def __init__(self, gateway: Gateway, lease: int) -> None:
        self._gateway = gateway
        self.lease: Final = lease

    async def keep(self) -> bool:
        return await self._gateway.keep_lease(self.lease)

    async def close(self) -> None:
        with suppress(EtcdUnavailable):
            await self._gateway.revoke_lease(self.lease)


class EtcdDirectory:
    def __init__(self, gateway: Gateway, keys: Keyspace) -> None:
        self._gateway = gateway
        self._keys = keys
        self._reader = Reader()

    async def open_session(self, ttl_s: int) -> EtcdSession:
        return EtcdSession(self._gateway, await self._gateway.grant_lease(ttl_s))

    async def regions(self) -> Mapping[Region, StoredRegion]:
        _, entries = await self._gateway.scan(self._keys.regions)
        return {stored.record.name: stored for stored in self._reader.readable(entries, _stored_region)}

    async def swap_region(
        self, record: RegionRecord, revision: int, fence: Fence | None = None, *, unless_present: bool = False
    ) -> int | None:
        key = self._keys.region(record.name)
        compares = unchanged(key, revision, fence)
        if unless_present:
            compares.append(none_under(self._keys.presences_of(record.name)))
        outcome = await self._gateway.transact(key, compares, [KVService.txn_op_put(key, encode_region(record))])
        return outcome.revision if outcome.succeeded else None

    async def announce(self, session: Session, presence: Presence) -> None:
        key = self._keys.presence(presence.region, presence.instance)
        await self._gateway.put(key, encode_presence(presence), lease_of(session))

    async def present(self) -> Sequence[Presence]:
        _, entries = await self._gateway.scan(self._keys.presences)
        return list(self._reader.readable(entries, lambda entry: decode_presence(entry.key, entry.value)))

    async def report(self, session: Session, region: Region, instance: str, demand: Sequence[Demand]) -> None:
        """In several parts if it must, the last of which takes away what is left of a longer report before it."""
        parts = [
            (self._keys.demand(region, instance, number), part)
            for number, part in enumerate(encode_report(region, demand))
        ]
        await self._gateway.put_parts(self._keys.demand_of(region, instance), parts, lease_of(session))

    async def demand(self, buckets: Container[int] = ALL_BUCKETS) -> Sequence[tuple[Region, Demand]]:
        _, entries = await self._gateway.scan(self._keys.demands)
        reports = self._reader.readable(entries, lambda entry: decode_report(entry.key, entry.value, buckets))
        return [(region, word) for region, words in reports for word in words]

    async def stand(self, session: Session, name: str) -> None:
        await self._gateway.put(self._keys.coordinator(name), name.encode(), lease_of(session))

    async def lead(self, session: Session, name: str, group: int = 0) -> Fence | None:
        key, lease = self._keys.leader(group), lease_of(session)
        outcome = await self._gateway.transact(
            key,
            [KVService.txn_compare_create_revision(key, 0)],
            [KVService.txn_op_put(key, name, lease=lease)],
            [KVService.txn_op_get(key)],
        )
        if outcome.succeeded:
            return Fence(key.decode(), outcome.revision)
        leader = outcome.entry
        return Fence(key.decode(), leader.created) if leader is not None and leader.lease == lease else None

    async def resign(self, fence: Fence) -> None:
        await self._gateway.transact(
            fence.key.encode(),
            [KVService.txn_compare_create_revision(fence.key, fence.create_revision)],
            [KVService.txn_op_delete(fence.key)],
        )

    async def leadership(self) -> Leadership:
        _, entries = await self._gateway.scan(self._keys.leadership)
        here = self._keys.coordinators
        present = [_name(entry) for entry in entries if entry.key.startswith(here)]
        others = (entry for entry in entries if not entry.key.startswith(here))
        return Leadership(dict(self._reader.readable(others, self._leader)), present)

    def _leader(self, entry: Entry) -> tuple[int, Leader]:
        try:
            group = self._keys.led_group(entry.key)
        except ValueError as error:
            raise unreadable(entry.key, error) from error
        return group, Leader(_name(entry), entry.created)

    async def suspend(self, tenant: str, since: float, why: str) -> None:
        await self._gateway.put(self._keys.suspension(tenant), encode_suspension(Suspension(tenant, since, why)), 0)

    async def resume(self, tenant: str) -> bool:
        return await self._gateway.delete(self._keys.suspension(tenant))

    async def suspensions(self) -> Mapping[str, Suspension]:
        _, entries = await self._gateway.scan(self._keys.suspensions)
        return {one.tenant: one for one in self._reader.readable(entries, self._suspension)}

    def _suspension(self, entry: Entry) -> Suspension:
        try:
            tenant = self._keys.suspended_tenant(entry.key)
        except ValueError as error:
            raise unreadable(entry.key, error) from error
        return decode_suspension(tenant, entry.key, entry.value)


def _name(entry: Entry) -> str:
    return entry.value.decode(errors="replace")


def _stored_region(entry: Entry) -> StoredRegion:
    return StoredRegion(entry.revision, decode_region(entry.key, entry.value))


def lease_of(session: Session) -> int:
    if not isinstance(session, EtcdSession):
        raise TypeError(f"the session is of another directory: {session!r}")
    return session.lease
