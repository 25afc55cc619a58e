"""Where documents stand in etcd. Identifiers are percent-encoded, so that a slash in one is not a step in the path."""

from dataclasses import dataclass
from urllib.parse import quote, unquote

from etcd3aio.kv import prefix_range_end

from regionquota.core.groups import ALL_BUCKETS
from regionquota.core.quota import QuotaKey, Region, bucket_of, is_identifier


@dataclass(frozen=True, slots=True)
class Keyspace:
    """All keys begin with `prefix`, which ends with a slash."""

    prefix: str

    @property
    def allocations(self) -> bytes:
        return self._key("alloc", "")

    @property
    def regions(self) -> bytes:
        return self._key("regions", "")

    @property
    def presences(self) -> bytes:
        return self._key("live", "")

    @property
    def demands(self) -> bytes:
        return self._key("demand", "")

    @property
    def suspensions(self) -> bytes:
        return self._key("suspended", "")

    @property
    def history(self) -> bytes:
        return self._key("history")

    @property
    def statements(self) -> bytes:
        return self._key("statements", "")

    @property
    def marks(self) -> bytes:
        return self._key("alerts", "")

    @property
    def leadership(self) -> bytes:
        return self._key("leader", "")

    @property
    def coordinators(self) -> bytes:
        return self._key("leader", "present", "")

    def coordinator(self, name: str) -> bytes:
        return self._key("leader", "present", name)

    def leader(self, group: int) -> bytes:
        """That of group 0 is the one by which a release that knows of no groups leads everything."""
        return self._key("leader", "coordinator", *((f"{group}",) if group else ()))

    def led_group(self, raw: bytes) -> int:
        """Raises `ValueError` for a key that `leader` would not have made."""
        rest = raw.removeprefix(self.leader(0))
        group = int(rest.removeprefix(b"/")) if rest else 0
        if group < 0 or self.leader(group) != raw:
            raise ValueError("the key is not that of a group's leader")
        return group

    def allocations_in(self, buckets: range) -> tuple[bytes, bytes]:
        """The first key, and the one behind the last; what no allocation's key can be lies in between as well."""
        first, behind = self.allocations, prefix_range_end(self.allocations)
        if buckets.start > ALL_BUCKETS.start:
            first = self._key("alloc", f"{buckets.start:02x}")
        if buckets.stop < ALL_BUCKETS.stop:
            behind = self._key("alloc", f"{buckets.stop:02x}")
        return first, behind

    def allocation(self, key: QuotaKey) -> bytes:
        return self._of_quota("alloc", key)

    def mark(self, key: QuotaKey) -> bytes:
        return self._of_quota("alerts", key)

    def region(self, name: Region) -> bytes:
        return self._key("regions", name)

    def presences_of(self, region: Region) -> bytes:
        return self._key("live", region, "")

    def presence(self, region: Region, instance: str) -> bytes:
        return self._key("live", region, instance)

    def demand_of(self, region: Region, instance: str) -> bytes:
        """What the keys of all parts of one report begin with."""
        return self._key("demand", region, instance, "")

    def demand(self, region: Region, instance: str, part: int) -> bytes:
        return self._key("demand", region, instance, f"{part:04}")

    def statement_of(self, region: Region) -> bytes:
        """What the keys of all parts of one statement begin with."""
        return self._key("statements", region, "")

    def statement(self, region: Region, part: int) -> bytes:
        return self._key("statements", region, f"{part:06}")

    @property
    def cries(self) -> bytes:
        return self._key("urgent", "")

    def cry(self, region: Region, instance: str) -> bytes:
        return self._key("urgent", region, instance)

    def crier(self, raw: bytes) -> tuple[Region, str]:
        """Raises `ValueError` for a key that `cry` would not have made."""
        region, instance = (unquote(step, errors="strict") for step in raw.removeprefix(self.cries).decode().split("/"))
        if self.cry(region, instance) != raw:
            raise ValueError("the key names what no server can name")
        return region, instance

    def suspension(self, tenant: str) -> bytes:
        return self._key("suspended", tenant)

    def suspended_tenant(self, raw: bytes) -> str:
        """Raises `ValueError` for a key that `suspension` would not have made."""
        tenant = unquote(raw.removeprefix(self.suspensions).decode(), errors="strict")
        if self.suspension(tenant) != raw or not is_identifier(tenant):
            raise ValueError("the key names what no caller can name")
        return tenant

    def quota_of(self, raw: bytes) -> QuotaKey:
        """Raises `ValueError` for a key that `allocation` would not have made: nobody could write it back."""
        return self._quota_in("alloc", raw)

    def marked_quota(self, raw: bytes) -> QuotaKey:
        """Raises `ValueError` for a key that `mark` would not have made."""
        return self._quota_in("alerts", raw)

    def _of_quota(self, what: str, key: QuotaKey) -> bytes:
        return self._key(what, f"{bucket_of(key.tenant):02x}", key.tenant, key.resource, key.scope)

    def _quota_in(self, what: str, raw: bytes) -> QuotaKey:
        steps = raw.removeprefix(self._key(what, "")).decode().split("/")
        key = QuotaKey(*(unquote(step, errors="strict") for step in steps[1:])) if len(steps) == 4 else None
        if key is None or self._of_quota(what, key) != raw:
            raise ValueError("the key is not that of a quota")
        if not all(map(is_identifier, (key.tenant, key.resource, key.scope))):
            raise ValueError("the key names what no caller can name")
        return key

    def _key(self, *steps: str) -> bytes:
        return (self.prefix + "/".join(quote(step, safe="") for step in steps)).encode()
