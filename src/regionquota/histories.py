"""What processes and operators do to etcd's history: each a read and a compare-and-swap. See `core.history`."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from regionquota.core.history import Bond, History, Phase
from regionquota.history_ports import HistoryStore

_log = structlog.get_logger(__name__)


def new_name() -> str:
    return secrets.token_hex(4)


async def _nothing() -> bool:
    return False


async def known_history(
    histories: HistoryStore,
    bond: Bond,
    former: str | None,
    by: str,
    now: float,
    is_explained: Callable[[], Awaitable[bool]] = _nothing,
) -> History:
    """The history as it stands; begun if there is none, halted if it is the one that the caller is bound to, and it is
    certain that etcd went backwards.

    `former` is the history that the caller has met, if any: an etcd that has none any more went backwards.
    `is_explained` is asked before it is halted whether anything else explains what was seen.
    Raises `EtcdUnavailable`. Loses to whoever writes at the same time, and is to be repeated anyway.
    """
    seen = bond.seen
    revision, found = await histories.read()
    if found is None and former is None:
        begun = History(new_name())
        if await histories.swap(begun, 0):
            _log.info("etcd's history begins", history=begun.name)
        _, found = await histories.read()
        return found or begun
    if found is None:
        seen.contradict("it knows nothing of the history that was written in")
        found = History(former or "")
    bound = bond.standing is not None and bond.standing.history == found.name
    if seen.broken is None or found.phase is not Phase.RUNNING or not bound or await is_explained():
        return found
    halted = replace(found, phase=Phase.HALTED, since=now, by=by, why=seen.broken)
    if await histories.swap(halted, revision):
        _log.error("etcd went backwards: its history is halted", history=found.name, why=seen.broken)
    return halted
