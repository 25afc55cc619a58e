"""Ports that wait for their turn before each call, so that a story can stop a process between any two."""

from collections.abc import Awaitable, Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any, Protocol

from regionquota.errors import EtcdUnavailable, InvalidRequest, StaleVersion, Unavailable
from regionquota.explorer.faults import Fault
from regionquota.explorer.ports import Call, turn


class Watcher(Protocol):
    """What looks on while a call is carried out."""

    async def carry(self, who: str, name: str, call: Callable[[], Awaitable[Any]]) -> Any: ...


class Gate:
    """One port, as one process sees it. `is_reached` False: it gets no answer, and nothing happens."""

    def __init__(self, who: str, port: Any, watcher: Watcher, is_reached: Callable[[], bool] = lambda: True) -> None:
        self._who = who
        self._port = port
        self._watcher = watcher
        self._is_reached = is_reached

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not iscoroutinefunction(method):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            fault = await turn(Call(name, ()))
            if not self._is_reached():
                raise EtcdUnavailable("etcd does not answer")
            answer = await self._watcher.carry(self._who, name, lambda: method(*args, **more))
            if fault is Fault.LOST_REPLY:
                raise EtcdUnavailable("etcd does not answer")
            return answer

        return call


class Work:
    """A coroutine of the product's, driven by hand. `at` is the call that it waits for; None: it is over."""

    def __init__(self, who: str, work: Coroutine[Any, Any, Any], tell: Callable[[str, str], None]) -> None:
        self._who = who
        self._work = work
        self._tell = tell
        self.at: str | None = None
        self.result: Any = None
        self.error: Exception | None = None
        self._go_on(None)

    def until(self, name: str) -> "Work":
        """Go on until it is about to make that call."""
        while self.at != name:
            assert self.at is not None, f"{self._who} ended without calling {name}"
            self._go_on(None)
        return self

    def finish(self) -> "Work":
        while self.at is not None:
            self._go_on(None)
        return self

    def lose_reply(self) -> "Work":
        """The call that it waits for is carried out, but it never hears so."""
        self._go_on(Fault.LOST_REPLY)
        return self

    def _go_on(self, fault: Fault | None) -> None:
        try:
            waits = self._work.send(fault)
            while waits is None:
                waits = self._work.send(None)
            self.at = waits.name
        except StopIteration as done:
            self.at, self.result = None, done.value
        except Unavailable as error:
            self.at, self.error = None, error
            self._tell(self._who, f"gives up for now: {error}")
        except (InvalidRequest, StaleVersion) as error:
            self.at, self.error = None, error
            self._tell(self._who, f"is refused: {error}")
