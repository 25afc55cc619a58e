"""`regionquota dev`: ready soon, keeps its data, leaves nothing behind however it ends."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import psutil
import pytest
from tests.end_to_end.support import PROGRAM, begun, dev, eventually, read_until, run

from regionquota.config import load
from regionquota.embedded import scratch_directory

READY_WITHIN_S = 15


def left_in(data_dir: Path) -> list[str]:
    """Processes that name this deployment's directory, wherever in the tree they ended up."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(data_dir) in words and process.info["pid"] != os.getpid():
            found.append(words)
    return found


async def nothing_left(data_dir: Path) -> list[str]:
    """What is still there after a while: the kernel's signals to orphans take a moment to be obeyed."""

    async def is_gone() -> bool:
        return not left_in(data_dir)

    await eventually(is_gone, what=f"the end of everything in {data_dir}")
    return left_in(data_dir)


async def test_it_is_ready_soon_and_keeps_its_data_and_ports_over_a_restart() -> None:
    with scratch_directory() as data_dir:
        began = time.monotonic()
        async with dev(data_dir, "--regions", "north,south") as (_, said):
            assert time.monotonic() - began < READY_WITHIN_S
            file = Path(said["config"])
            url = load(file, {}).deployment.regions["north"].url
            assert 0 == (await run("quota", "set", "acme", "vcpu", "10", config=file))[0]
            await _reserve(url, "first")
        async with dev(data_dir, "--regions", "north,south") as (_, again), aiohttp.ClientSession() as http:
            assert said["addresses"] == again["addresses"]
            async with http.get(f"{url}/v1/reservations?tenant_id=acme&request_id=first") as answer:
                assert 200 == answer.status
        assert [] == await nothing_left(data_dir)


async def _reserve(url: str, request_id: str) -> None:
    body = {"request_id": request_id, "tenant_id": "acme", "resource": "vcpu", "amount": 1}
    async with aiohttp.ClientSession() as http, http.post(f"{url}/v1/reservations", json=body) as answer:
        assert 201 == answer.status, await answer.text()


async def test_etcd_may_be_far_away_from_all_that_ask_it() -> None:
    with scratch_directory() as data_dir:
        async with (
            dev(data_dir, "--regions", "solo", "--etcd-rtt-ms", "60") as (_, said),
            aiohttp.ClientSession() as http,
            http.get(f"{said['addresses']['faults']}/proxies") as answer,
        ):
            proxies = (await answer.json())["proxies"]
    assert {"solo": 0.03, "coordinator": 0.03} == {proxy["name"]: proxy["delay_seconds"] for proxy in proxies}
    assert all(proxy["bytes_to_client"] > 0 for proxy in proxies)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_it_leaves_nothing_behind(how: signal.Signals) -> None:
    with scratch_directory() as data_dir:
        async with dev(data_dir, "--regions", "solo") as (child, _):
            child.send_signal(how)
            await asyncio.wait_for(child.wait(), 30)
            assert [] == await nothing_left(data_dir)


@pytest.mark.parametrize("step", ["starting Postgres", "migrating", "starting region servers"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
async def test_a_deployment_that_is_not_up_yet_ends_at_once(how: signal.Signals, step: str) -> None:
    with scratch_directory() as data_dir:
        async with begun("dev", "--regions", "solo", "--data-dir", str(data_dir)) as child:
            await read_until(child, step)
            child.send_signal(how)
            said, _ = await asyncio.wait_for(child.communicate(), 60)
        assert "Ctrl-C ends it" not in said.decode(), "it came up first"
        assert "Traceback" not in said.decode()
        assert 130 == child.returncode
        assert [] == await nothing_left(data_dir)


async def test_it_ends_when_its_parent_is_killed() -> None:
    with scratch_directory() as data_dir:
        command = [*PROGRAM, "dev", "--json", "--regions", "solo", "--data-dir", str(data_dir)]
        parent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", f"import subprocess; subprocess.run({command!r})", stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        assert await asyncio.wait_for(parent.stdout.readline(), 60)
        parent.kill()
        await parent.wait()
        assert [] == await nothing_left(data_dir)


async def test_a_second_one_on_the_same_directory_is_refused() -> None:
    with scratch_directory() as data_dir:
        async with dev(data_dir, "--regions", "solo"):
            status, _, said = await run("dev", "--regions", "solo", "--data-dir", str(data_dir))
            assert 1 == status
            assert "another regionquota dev runs on" in said


async def test_it_uses_the_etcd_and_postgres_that_the_configuration_names() -> None:
    with scratch_directory() as data_dir, scratch_directory() as other:
        async with dev(data_dir, "--regions", "solo") as (_, said):
            there = load(Path(said["config"]), {})
            file = other / "named.toml"
            region = there.deployment.regions["solo"]
            file.write_text(
                f'[etcd]\nendpoints = ["{there.etcd.endpoints[0]}"]\nprefix = "{there.etcd.prefix}"\n'
                f'[deployment]\nregions = {{ solo = {{ url = "{region.url}", dsn = "{region.dsn}" }} }}\n'
            )
            async with dev(other / "data", "--regions", "solo", "--config", str(file)) as (_, again):
                assert again["addresses"]["etcd"] == said["addresses"]["etcd"]
                assert again["addresses"]["Postgres solo"] == said["addresses"]["Postgres solo"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--regions", "eu,eu"], "different names"),
        (["--regions", "EU!"], "--regions takes 1 to 63 characters"),
        (["--etcd-rtt-ms", "1001"], "--etcd-rtt-ms"),
        (["--etcd-rtt-ms", "5", "--etcd", "127.0.0.1:1,127.0.0.1:2"], "--etcd-rtt-ms delays one etcd"),
        (["--etcd-rtt-ms", "5", "--regions", "coordinator"], "--regions: with --etcd-rtt-ms"),
        (["--etcd", "nowhere"], "host:port"),
        (["--config", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
async def test_wrong_options_are_one_line_that_names_the_remedy(arguments: list[str], says: str) -> None:
    with scratch_directory() as data_dir:
        status, _, said = await run("dev", "--data-dir", str(data_dir), *arguments)
    assert status in (1, 2)
    assert says in said
    assert "Traceback" not in said
