"""Child processes that cannot outlive us.

On Linux the kernel signals a child when the thread that forked it ends, even by SIGKILL (PR_SET_PDEATHSIG).
So start children from a thread that lives as long as they should: the event loop's, normally the main one.
Elsewhere there is no such signal: a child outlives a parent killed by SIGKILL, and exits are noticed by polling.
"""

import asyncio
import ctypes
import functools
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog

log = structlog.get_logger(__name__)

_PR_SET_PDEATHSIG: Final = 1
_REMEMBERED_LINES: Final = 50
_LONGEST_LINE: Final = 64 * 1024
_POLL_SECONDS: Final = 0.05

_prctl: Callable[..., int] | None = None
if sys.platform == "linux":  # bound here, because a fresh fork of a threaded process must not take the loader's lock
    _prctl = ctypes.CDLL(None, use_errno=True).prctl
    _prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class SystemUser(NamedTuple):
    uid: int
    gid: int


class Outcome(NamedTuple):
    code: int
    output: str


def _on_parent_death(sig: int) -> None:
    if _prctl is not None and _prctl(_PR_SET_PDEATHSIG, sig, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def die_with_parent(sig: signal.Signals = signal.SIGTERM, *, parent: int | None = None) -> None:
    """Send `sig` to ourselves when our parent dies. Does nothing where there is no PR_SET_PDEATHSIG.

    A parent that died before this call is noticed only if its pid was handed over as `parent`: an orphan's
    getppid() looks like any other. Call it after every change of uid, which makes the kernel forget it.
    """
    if _prctl is None:
        return
    expected = os.getppid() if parent is None else parent
    _on_parent_death(sig)
    if os.getppid() != expected:
        os.kill(os.getpid(), sig)


def _in_the_child(sig: signal.Signals, parent: int) -> None:
    """Runs between setuid and exec. An orphan already ends here: `sig` may be one that our parent ignored."""
    _on_parent_death(sig)
    if os.getppid() != parent:
        os._exit(127)


def clean_environment() -> dict[str, str]:
    """Only PATH: PG* and ETCD_* variables meant for someone else would override our flags."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


class _Lines(asyncio.Protocol):
    def __init__(self, sink: Callable[[str], None]) -> None:
        self._sink = sink
        self._rest = b""
        self.closed = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._sink(line.decode(errors="replace"))

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._rest:
            self._sink(self._rest.decode(errors="replace"))
        if not self.closed.done():
            self.closed.set_result(None)


class Child:
    """One run of one program, in its own process group, dying with us.

    `output` is a file to append to, or a callback for each line. `death_signal` is what the kernel sends when we
    die, `stop_signal` what `stop` sends first. `user` takes effect before exec and needs root.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        output: Path | Callable[[str], None],
        user: SystemUser | None = None,
        env: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self._argv = argv
        self._output = output
        self._user = user
        self._env = clean_environment() if env is None else env
        self._stop_signal = stop_signal
        self._death_signal = death_signal
        self._said: deque[str] = deque(maxlen=_REMEMBERED_LINES)
        self._log_start = 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._exit: asyncio.Future[int] | None = None
        self._pipe: asyncio.ReadTransport | None = None
        self._lines: _Lines | None = None

    async def start(self) -> None:
        sink = self._open_log() if isinstance(self._output, Path) else subprocess.PIPE
        try:
            self._popen = self._spawn(sink)
        finally:
            if sink != subprocess.PIPE:
                os.close(sink)
        self._exit = asyncio.get_running_loop().create_future()
        self._watch()
        if self._popen.stdout is not None:
            self._pipe, self._lines = await asyncio.get_running_loop().connect_read_pipe(
                lambda: _Lines(self._hear), self._popen.stdout
            )

    def _open_log(self) -> int:
        path = Path(str(self._output))
        path.parent.mkdir(parents=True, exist_ok=True)
        sink = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._log_start = os.fstat(sink).st_size
        return sink

    def _spawn(self, sink: int) -> subprocess.Popen[bytes]:
        # Popen and not asyncio's subprocesses: uvloop's know neither user= nor process_group=.
        identity: dict[str, Any] = {}
        if self._user is not None:
            identity = {"user": self._user.uid, "group": self._user.gid, "extra_groups": []}
        # preexec_fn runs last, after setuid: a change of uid clears PR_SET_PDEATHSIG.
        tie = functools.partial(_in_the_child, self._death_signal, os.getpid())
        return subprocess.Popen(  # noqa: S603 - argv comes from this package
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd="/",  # ours may be one that `user` must not enter
            env=self._env,
            process_group=0,  # a terminal's Ctrl-C reaches us only: we stop the children in order
            preexec_fn=tie,  # noqa: PLW1509
            **identity,
        )

    def _hear(self, line: str) -> None:
        self._said.append(line)
        if not isinstance(self._output, Path):
            self._output(line)

    def _watch(self) -> None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or a kernel or sandbox without pidfd
            self._poll()
            return
        asyncio.get_running_loop().add_reader(pidfd, self._exited, pidfd)

    def _exited(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._reap()

    def _poll(self) -> None:
        if self._started.poll() is None:
            asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)
        else:
            self._reap()

    def _reap(self) -> None:
        code = self._started.wait()
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(code)

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._popen

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def running(self) -> bool:
        return self._exit is not None and not self._exit.done()

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal, None while running or never started."""
        return self._exit.result() if self._exit is not None and self._exit.done() else None

    async def wait(self) -> int:
        """The exit code, however it came to end. Any number of tasks may wait."""
        if self._exit is None:
            raise RuntimeError(f"{self.name} was not started")
        code = await asyncio.shield(self._exit)
        if self._pipe is not None and self._lines is not None:
            with suppress(TimeoutError):  # a grandchild may hold the pipe open
                await asyncio.wait_for(asyncio.shield(self._lines.closed), 1)
            self._pipe.close()
        return code

    def send(self, sig: signal.Signals) -> None:
        """To the process itself, not to its group. No effect once it has ended."""
        if self.running:
            self._started.send_signal(sig)

    def kill(self) -> None:
        """SIGKILL to the whole group."""
        if self.running:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, patience: float) -> int:
        self.send(self._stop_signal)
        try:
            return await asyncio.wait_for(self.wait(), patience)
        except TimeoutError:
            log.warning("child_does_not_stop", name=self.name, pid=self.pid, patience=patience)
            self.kill()
            return await self.wait()

    def last_lines(self, count: int = 20) -> str:
        """What this run said last, earlier runs in the same log file excluded."""
        if not isinstance(self._output, Path):
            return "\n".join(list(self._said)[-count:])
        with self._output.open("rb") as written:
            end = written.seek(0, os.SEEK_END)
            written.seek(max(self._log_start, end - _LONGEST_LINE))
            return "\n".join(written.read().decode(errors="replace").splitlines()[-count:])


async def run(name: str, argv: Sequence[str], *, user: SystemUser | None, patience: float = 60) -> Outcome:
    """Run to the end. A cancelled caller, or one that waited `patience` seconds, leaves no process behind."""
    child = Child(name, argv, output=lambda _: None, user=user)
    await child.start()
    try:
        code = await asyncio.wait_for(child.wait(), patience)
    finally:
        if child.running:
            child.kill()
            await child.wait()
    return Outcome(code, child.last_lines())
