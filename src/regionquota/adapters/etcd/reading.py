"""Lists and watches get past a document that this release cannot read."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import structlog

from regionquota.adapters.etcd.changes import Change
from regionquota.adapters.etcd.gateway import Entry
from regionquota.errors import UnreadableDocument

T = TypeVar("T")
D = TypeVar("D", Entry, Change)

log = structlog.get_logger(__name__)


class Reader:
    """Passes over unreadable documents and says so, once for each revision of each."""

    def __init__(self) -> None:
        self._said: dict[bytes, int] = {}

    def readable(self, documents: Iterable[D], read: Callable[[D], T]) -> Iterator[T]:
        for document in documents:
            try:
                yield read(document)
            except UnreadableDocument as error:
                self._say(document.key, document.revision, error)

    def _say(self, key: bytes, revision: int, error: UnreadableDocument) -> None:
        if self._said.get(key) != revision:
            self._said[key] = revision
            log.error(
                "unreadable document skipped", key=key.decode(errors="replace"), revision=revision, why=str(error)
            )
