"""What operators do to etcd, and what happens to it: through its HTTP gateway, and with etcdutl from the wheel."""

import asyncio
import base64
import shutil
from pathlib import Path
from typing import Any, Final

import aiohttp

from regionquota.chaos.cluster import Cluster
from regionquota.embedded import EmbeddedEtcd
from regionquota.errors import EtcdUnavailable

BALLAST: Final = "/ballast/"
BALLAST_BYTES: Final = 200_000
TIMEOUT_S: Final = 5.0


async def call(member: EmbeddedEtcd, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Raises `EtcdUnavailable` with what etcd says."""
    url = f"http://{member.endpoint}/v3/{path}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session,
            session.post(url, json=body) as answer,
        ):
            said: dict[str, Any] = await answer.json(content_type=None)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise EtcdUnavailable(f"{path}: {error or type(error).__name__}") from error
    if answer.status != 200:
        raise EtcdUnavailable(f"{path}: {said.get('message', said)}")
    return said


async def leader(members: list[EmbeddedEtcd]) -> EmbeddedEtcd | None:
    """None: the members that answer know of none."""
    for member in members:
        if not member.running:
            continue
        try:
            said = await call(member, "maintenance/status", {})
        except EtcdUnavailable:
            continue
        if said.get("leader") == said["header"]["member_id"]:
            return member
    return None


async def compact(member: EmbeddedEtcd, revision: int) -> None:
    """Forget all revisions before it."""
    await call(member, "kv/compaction", {"revision": revision, "physical": True})


async def fill(member: EmbeddedEtcd) -> int:
    """Write until etcd has no room left; returns how often."""
    value = base64.b64encode(bytes(BALLAST_BYTES)).decode()
    number = 0
    while True:
        try:
            await call(member, "kv/put", {"key": _encoded(f"{BALLAST}{number}"), "value": value})
        except EtcdUnavailable as error:
            if "space" in str(error):
                return number
            raise
        number += 1


async def empty(member: EmbeddedEtcd, revision: int) -> None:
    """As an operator would: delete, compact up to `revision`, defragment, take the alarm back."""
    end = BALLAST[:-1] + chr(ord(BALLAST[-1]) + 1)
    await call(member, "kv/deleterange", {"key": _encoded(BALLAST), "range_end": _encoded(end)})
    await compact(member, revision)
    await call(member, "maintenance/defragment", {})
    alarms = await call(member, "maintenance/alarm", {"action": "GET"})
    for alarm in alarms.get("alarms", []):
        asked = {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"]}
        await call(member, "maintenance/alarm", asked)


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


async def snapshot(cluster: Cluster, into: Path) -> None:
    """Copy the data of the only member, which is stopped meanwhile."""
    (member,) = cluster.etcd
    await member.stop()
    await asyncio.to_thread(shutil.copytree, member.data_dir, into)
    await member.start()


async def restore(cluster: Cluster, snapshot: Path) -> None:
    """Let the only member go on from an older state, at the same address."""
    (member,) = cluster.etcd
    cluster.mark("etcd restored")
    await member.kill()
    await asyncio.to_thread(shutil.rmtree, member.data_dir)
    await asyncio.to_thread(shutil.copytree, snapshot, member.data_dir)
    await member.start()
