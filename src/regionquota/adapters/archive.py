"""LedgerArchive in a directory: one gzip file of JSON lines for each day of a region."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO

from regionquota.core.quota import Region
from regionquota.ledger_files import json_lines, whole_file
from regionquota.ledger_ports import LedgerLine


@dataclass(frozen=True, slots=True)
class DirectoryArchive:
    directory: Path
    region: Region

    def path_of(self, day: date) -> Path:
        return self.directory / f"usage-ledger-{self.region}-{day:%Y-%m-%d}.jsonl.gz"

    async def keep(self, day: date, parts: AsyncGenerator[Sequence[LedgerLine], None]) -> int:
        kept = 0
        async with _in_threads(whole_file(self.path_of(day))) as file, aclosing(parts):
            # Without a time of its own, so that the same day is the same file whoever writes it.
            packed = gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="")
            async for lines in parts:
                await asyncio.to_thread(packed.write, json_lines(self.region, lines))
                kept += len(lines)
            await asyncio.to_thread(packed.close)
        return kept


@asynccontextmanager
async def _in_threads(file: AbstractContextManager[IO[bytes]]) -> AsyncIterator[IO[bytes]]:
    """The disk may take its time: the event loop goes on serving."""
    opened = await asyncio.to_thread(file.__enter__)
    try:
        yield opened
    except BaseException as error:
        await asyncio.to_thread(file.__exit__, type(error), error, error.__traceback__)
        raise
    await asyncio.to_thread(file.__exit__, None, None, None)
