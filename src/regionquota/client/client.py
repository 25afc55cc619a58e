"""What is made of the calls: a hold around work, units in advance."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from regionquota.client.blocks import Block
from regionquota.client.calls import GLOBAL, Calls, Priority
from regionquota.client.errors import QuotaError
from regionquota.client.holds import Hold


class Client(Calls):
    @asynccontextmanager
    async def reserved(self, tenant_id: str, resource: str, amount: int, **how: Any) -> AsyncIterator[Hold]:
        """A hold around work, `how` as in `reserve`: committed when the work is done, released when it raises.

        Work that was started (`Hold.start`) and raises is left open: only who carries it out knows what became of it.
        """
        hold = Hold(self, await self.reserve(tenant_id, resource, amount, **how))
        try:
            yield hold
        except BaseException:
            await hold.abandon()
            raise
        await hold.settle()

    @asynccontextmanager
    async def block(
        self,
        tenant_id: str,
        resource: str,
        size: int,
        *,
        scope: str = GLOBAL,
        ttl_s: int = 60,
        priority: Priority = "normal",
    ) -> AsyncIterator[Block]:
        """Units in advance, `size` at a time for at most `ttl_s` seconds, handed out without a call for each."""
        block = Block(self, tenant_id, resource, size, scope=scope, ttl_s=ttl_s, priority=priority)
        try:
            yield block
        except BaseException:
            with suppress(QuotaError):  # it is logged; what ended the work is what matters
                await block.close()
            raise
        await block.close()
