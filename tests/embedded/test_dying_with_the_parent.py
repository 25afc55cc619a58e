import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from regionquota.embedded.cluster import processes_in
from regionquota.embedded.install import etcd_program, postgres_programs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")

# Imports come before setuid: the interpreter may lie under a directory that nobody cannot enter, such as /root.
PARENT = """
import asyncio, concurrent.futures.thread, encodings.ascii, encodings.idna, json, os, sys
from pathlib import Path
from regionquota.embedded import EmbeddedEtcd, EmbeddedPostgres

async def main(folder, programs, etcd, uid):
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    postgres = EmbeddedPostgres(Path(folder, "postgres"), programs=Path(programs))
    other = EmbeddedEtcd(Path(folder, "etcd"), binary=Path(etcd))
    await asyncio.gather(postgres.start(), other.start())
    print(json.dumps([postgres.pid, other.pid]), flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""
NOBODY = 65534


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"  # nobody may reap orphans
    except OSError:
        return True


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.02)


async def assert_all_die_with_a_parent(folder: Path, programs: Path, etcd: Path, uid: int) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(folder), str(programs), str(etcd), str(uid),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert parent.stdout is not None
    pids = json.loads(await asyncio.wait_for(parent.stdout.readline(), 30))
    assert [False, False] == [gone(pid) for pid in pids]
    if uid != 0:  # root's Postgres runs as another user
        assert {uid} == {Path(f"/proc/{pid}").stat().st_uid for pid in pids}  # noqa: ASYNC240 - procfs does not block
    parent.send_signal(signal.SIGKILL)
    await parent.communicate()
    await eventually(lambda: all(gone(pid) for pid in pids) and not processes_in(folder / "postgres"))


async def test_nothing_outlives_a_parent_killed_by_sigkill(scratch: Path) -> None:
    await assert_all_die_with_a_parent(scratch, postgres_programs(), etcd_program(), os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="the test above is this one, when not root")
async def test_nor_when_the_parent_is_an_ordinary_user(
    scratch: Path, replicate_postgres: Callable[[Path], Path]
) -> None:
    programs = replicate_postgres(scratch / "site")
    etcd = scratch / "site" / "etcd"
    shutil.copy(etcd_program(), etcd)
    home = scratch / "home"
    home.mkdir()
    shutil.chown(home, NOBODY, NOBODY)
    await assert_all_die_with_a_parent(home, programs, etcd, NOBODY)


SUPERVISOR = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import time
from regionquota.embedded import die_with_parent
die_with_parent()
print("tied", flush=True)
time.sleep(600)
'''], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


async def test_a_supervisor_can_die_with_its_own_parent() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", SUPERVISOR, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    supervisor = int(await asyncio.wait_for(parent.stdout.readline(), 20))
    parent.send_signal(signal.SIGKILL)
    await parent.communicate()
    await eventually(lambda: gone(supervisor))
