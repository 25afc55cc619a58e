"""The edge at which whatever goes wrong with etcd becomes `EtcdUnavailable`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from etcd3aio import EtcdError

from regionquota.errors import EtcdUnavailable
from regionquota.ports import CompactedError


@asynccontextmanager
async def answered(what: str, within: float) -> AsyncIterator[None]:
    """Raise `EtcdUnavailable`, chained, unless the body is done in `within` seconds and without an error of etcd's.

    The deadline is our own, since a stream has none and a hung etcd holds its connections open.
    """
    try:
        async with asyncio.timeout(within):
            yield
    except TimeoutError as error:
        raise EtcdUnavailable(f"etcd did not answer {what} within {within:g} s") from error
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.OUT_OF_RANGE and "compacted" in (error.details() or ""):
            raise CompactedError(f"etcd refused {what}: {error.details()}") from error
        raise EtcdUnavailable(f"etcd refused {what}: {error.code().name}, {error.details()}") from error
    except EtcdError as error:
        raise EtcdUnavailable(f"etcd did not answer {what}: {error}") from error
    except grpc.aio.UsageError as error:
        raise EtcdUnavailable(f"cannot ask etcd {what}: the client is closed") from error
    except asyncio.CancelledError as error:
        # Closing a channel cancels its calls; nobody asked for the end of the task that waits for one.
        if _cancelled_from_outside():
            raise
        raise EtcdUnavailable(f"etcd did not answer {what}: the client was closed") from error


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
