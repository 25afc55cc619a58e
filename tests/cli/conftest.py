import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet_loggers() -> Iterator[None]:
    """Commands silence what a person at a prompt has no use for; other tests do have."""
    loggers = [logging.getLogger(name) for name in ("asyncio", "asyncpg", "grpc")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
