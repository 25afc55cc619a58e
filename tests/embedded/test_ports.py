import socket

import pytest

from regionquota.embedded import free_ports
from regionquota.embedded.ports import require_free
from regionquota.errors import ConfigError


def test_free_ports_differ() -> None:
    assert 500 == len(set(free_ports(500)))


def test_a_taken_port_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="etcd cannot listen"):
        require_free(taken.getsockname()[1], "etcd")
