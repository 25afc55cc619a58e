"""Which history of etcd a process reads and writes documents in: see `core.history`."""

from typing import Final

from etcd3aio._protobuf import Compare
from etcd3aio.kv import KVService

from regionquota.adapters.etcd.gateway import Entry
from regionquota.adapters.etcd.history_codec import decode_history, encode_history
from regionquota.core.history import EVICTED, Bond, History, why_ended
from regionquota.errors import EtcdUnavailable, HistoryEnded


class Binding:
    """With a `bond`, nothing is read or written but in its history, while that is running.

    Without one, what is read first settles which history is written in; anything may be read. For those who only look,
    and for commands of operators. `recovering` is the one that a recovery itself writes in.
    """

    def __init__(self, key: bytes, bond: Bond | None = None, *, recovering: History | None = None) -> None:
        self.key: Final = key
        self._bond = bond
        self._recovering = None if recovering is None else encode_history(recovering)
        self._first: Entry | None = None
        self.is_new = bond is None and recovering is None
        """Whether something is to be read before it can write."""

    def meet(self, found: Entry | None) -> None:
        """The history as it was read beside something else. Raises `HistoryEnded` if that must not be used."""
        if self.is_new:
            self._first, self.is_new = found, False
        elif self._bond is not None or self._recovering is not None:
            self.require(found)

    def require(self, found: Entry | None) -> None:
        """Raises `HistoryEnded` if it is not the one to write in."""
        wanted = self._wanted()
        if (None if found is None else found.value) == wanted:
            return
        history = None if found is None else decode_history(found.key, found.value)
        if wanted is None and history is not None and not history.trouble:
            self.is_new = True  # the very first has just begun: as if somebody else had changed the document
            return
        raise HistoryEnded(why_ended(history))

    def compare(self) -> Compare:
        """To be part of every write. Raises `EtcdUnavailable` where nothing is to be written."""
        if self._bond is not None and self._bond.is_evicted:
            raise EtcdUnavailable(EVICTED)
        wanted = self._wanted()
        if wanted is None:
            return KVService.txn_compare_create_revision(self.key, 0)
        return Compare(result=Compare.EQUAL, target=Compare.VALUE, key=self.key, value=wanted)

    def _wanted(self) -> bytes | None:
        if self._recovering is not None:
            return self._recovering
        if self._bond is None:
            first = self._first
            return None if first is None else encode_history(History(decode_history(first.key, first.value).name))
        if self._bond.standing is None:
            raise EtcdUnavailable("this process has not learnt yet which history of etcd it works in")
        return encode_history(History(self._bond.standing.history))
