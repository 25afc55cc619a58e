"""What the product's processes say to their logs, a million times over."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


def be_quiet() -> None:
    """For good: to find out anew each time that nobody listens costs a few hundredths of a run."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=True
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged inside, and what was configured before is configured again afterwards."""
    known = structlog.get_config()
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**known)
