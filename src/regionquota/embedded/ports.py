"""Loopback ports."""

import errno
import secrets
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from regionquota.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 15_000
_TRIES: Final = 100


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except OSError:
        return 32_768


def _listen(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is not in use
        sock.bind((LOOPBACK, port))
        sock.listen()  # without it, SO_REUSEADDR lets two sockets have one port
    except OSError:
        sock.close()
        raise
    return sock


def _listen_anywhere() -> socket.socket:
    """Below the ephemeral range if that leaves room.

    A port inside it can be taken by any outgoing connection while its server is down, and a client that keeps
    dialling it can even connect to itself: both make fault tests fail now and then.
    """
    room = _first_ephemeral() - _LOWEST
    for _ in range(_TRIES if room > _TRIES else 0):
        try:
            return _listen(_LOWEST + secrets.randbelow(room))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return _listen(0)


def free_ports(count: int) -> list[int]:
    """Different ports on which nothing listened a moment ago: someone else may take one before you do."""
    with ExitStack() as held:
        return [held.enter_context(_listen_anywhere()).getsockname()[1] for _ in range(count)]


def free_port() -> int:
    return free_ports(1)[0]


def require_free(port: int, what: str) -> None:
    """Raise `ConfigError` if `port` is taken, rather than talk to whoever listens there."""
    try:
        _listen(port).close()
    except OSError as error:
        raise ConfigError(f"{what} cannot listen on {LOOPBACK}:{port}: {error.strerror}") from error
