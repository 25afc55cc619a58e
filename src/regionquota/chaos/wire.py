"""Reads what a client of Postgres says, as far as it takes to cut the line when a commit is being answered.

Frontend messages: https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from collections.abc import Iterator
from typing import Final

from regionquota.embedded.proxy import Way

_SSL_REQUEST: Final = 80877103
_GSS_REQUEST: Final = 80877104
_WRITES: Final = (b"INSERT INTO reservations", b"UPDATE reservations", b"INSERT INTO adjustments")


class CommitCutter:
    """Arms all connections at once: the next `armed` answers to a commit are lost, and their connections with them."""

    def __init__(self) -> None:
        self.armed = 0
        self.cut = 0

    def inspector(self) -> "_Line":
        return _Line(self)

    def take(self) -> bool:
        if self.armed <= 0:
            return False
        self.armed -= 1
        self.cut += 1
        return True


class _Line:
    """One connection. A statement that writes is a commit of its own outside a transaction; COMMIT is one inside."""

    def __init__(self, cutter: CommitCutter) -> None:
        self._cutter = cutter
        self._rest = b""
        self._is_started = False
        self._writing: dict[bytes, bool] = {}
        self._in_transaction = False
        self._commits = False

    def passes(self, way: Way, data: bytes) -> bool:
        if way is Way.TO_TARGET:
            for kind, body in self._messages(data):
                self._hear(kind, body)
            return True
        if not self._commits:
            return True
        # The answer begins: whatever it says, Postgres has carried the statement out, or is about to.
        self._commits = False
        return not self._cutter.take()

    def _messages(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._rest += data
        while True:
            head = 1 if self._is_started else 0
            if len(self._rest) < head + 4:
                return
            length = int.from_bytes(self._rest[head : head + 4], "big")
            if len(self._rest) < head + length:
                return
            kind, body = self._rest[:head], self._rest[head + 4 : head + length]
            self._rest = self._rest[head + length :]
            if not self._is_started:
                asked = int.from_bytes(body[:4], "big")
                self._is_started = asked not in {_SSL_REQUEST, _GSS_REQUEST}
                continue
            yield kind, body

    def _hear(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":  # Parse: name, statement
                name, _, statement = body.partition(b"\0")
                self._writing[name] = any(word in statement for word in _WRITES)
            case b"B":  # Bind: portal, name of the statement
                name = body.split(b"\0", 2)[1]
                self._commits = self._writing.get(name, False) and not self._in_transaction
            case b"Q":
                self._commits = body.startswith(b"COMMIT")
                self._in_transaction = body.startswith(b"BEGIN")
            case _:
                pass
