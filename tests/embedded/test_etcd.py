import base64
from pathlib import Path

import aiohttp
import pytest

from regionquota.embedded import EmbeddedEtcd
from regionquota.errors import ConfigError, EtcdUnavailable


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def put(server: EmbeddedEtcd, key: str, value: str) -> None:
    async with (
        aiohttp.ClientSession(f"http://{server.endpoint}") as http,
        http.post("/v3/kv/put", json={"key": encoded(key), "value": encoded(value)}) as answer,
    ):
        answer.raise_for_status()


async def get(server: EmbeddedEtcd, key: str) -> str:
    async with (
        aiohttp.ClientSession(f"http://{server.endpoint}") as http,
        http.post("/v3/kv/range", json={"key": encoded(key)}) as answer,
    ):
        return base64.b64decode((await answer.json())["kvs"][0]["value"]).decode()


async def test_data_and_port_outlive_a_restart(etcd: EmbeddedEtcd) -> None:
    endpoint = etcd.endpoint
    await put(etcd, "quota", "stopped")
    await etcd.stop()
    assert not etcd.running
    await etcd.start()
    assert "stopped" == await get(etcd, "quota")
    assert endpoint == etcd.endpoint


async def test_data_outlives_a_crash(etcd: EmbeddedEtcd) -> None:
    await put(etcd, "quota", "crashed")
    await etcd.kill()
    assert -9 == etcd.exit_code
    await etcd.start()
    assert "crashed" == await get(etcd, "quota")


async def test_a_taken_port_is_named(etcd: EmbeddedEtcd, scratch: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {etcd.endpoint}"):
        await EmbeddedEtcd(scratch / "other", client_port=etcd.client_port).start()


async def test_last_words_are_in_the_error_when_it_cannot_start(scratch: Path) -> None:
    server = EmbeddedEtcd(scratch / "etcd", extra=["--auto-compaction-mode", "nonsense"])
    with pytest.raises(EtcdUnavailable, match="nonsense"):
        await server.start()
    assert not server.running


async def test_options_are_accepted(scratch: Path) -> None:
    server = EmbeddedEtcd(scratch / "etcd", unsafe_no_fsync=True, auto_compaction_retention="1h")
    await server.start()
    await put(server, "quota", "1")
    await server.stop()
