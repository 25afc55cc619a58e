"""All holdings of a region, a page at a time: there may be a hundred thousand, and callers who wait meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from regionquota.core.slice import Holding
from regionquota.ports import RegionStore

PAGE: Final = 200
"""Holdings read, and looked at, without letting callers have their turn: some 5 ms."""


async def pages(store: RegionStore) -> AsyncIterator[Sequence[Holding]]:
    """Each as it is when it is read. Raises `StoreUnavailable`."""
    page = await store.holdings_after(None, PAGE)
    while page:
        yield page
        await asyncio.sleep(0)
        page = await store.holdings_after(page[-1].key, PAGE) if len(page) == PAGE else ()
