"""Keeps a coordinator in one history of etcd. It remembers nothing, so it takes the one it finds running."""

from collections.abc import Callable

import structlog

from regionquota.core.history import Bond, Phase, Standing
from regionquota.histories import known_history
from regionquota.history_ports import HistoryStore
from regionquota.ports import Clock

_log = structlog.get_logger(__name__)


class HistoryWatch:
    """`on_ended`: the history that this process is bound to has ended; it has to start anew."""

    def __init__(
        self, name: str, histories: HistoryStore, bond: Bond, clock: Clock, on_ended: Callable[[], None]
    ) -> None:
        self._name = name
        self._histories = histories
        self._bond = bond
        self._clock = clock
        self._on_ended = on_ended
        self.trouble: str | None = None

    async def step(self) -> None:
        """Raises `EtcdUnavailable`."""
        bound = self._bond.standing
        former = None if bound is None else bound.history
        history = await known_history(self._histories, self._bond, former, self._name, self._clock.now())
        trouble = history.trouble or None
        if trouble is not None and trouble != self.trouble:
            _log.error("nothing moves", why=trouble)
        self.trouble = trouble
        if bound is not None and history.name != bound.history:
            self._on_ended()
        elif bound is None and history.phase is Phase.RUNNING:
            self._bond.bind(Standing(history.name))
