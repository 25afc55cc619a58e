"""What several folders of tests share."""

from collections.abc import AsyncIterator

import pytest
from hypothesis import settings

from regionquota.embedded import EmbeddedEtcd, scratch_directory

# How soon an example is through says more of a noisy machine than of the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
async def etcd() -> AsyncIterator[EmbeddedEtcd]:
    """One for all who leave it running: each test takes a prefix of its own."""
    with scratch_directory() as directory:
        server = EmbeddedEtcd(directory / "etcd", unsafe_no_fsync=True)
        await server.start()
        yield server
        await server.kill()  # nobody needs its data any more
