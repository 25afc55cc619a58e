"""Postgres and etcd from wheels, and a proxy to part them with: for `regionquota dev` and the tests."""

from regionquota.embedded.control import ProxyControl
from regionquota.embedded.etcd import EmbeddedEtcd
from regionquota.embedded.ports import free_port, free_ports
from regionquota.embedded.postgres import EmbeddedPostgres
from regionquota.embedded.process import Child, die_with_parent
from regionquota.embedded.proxy import TcpProxy
from regionquota.embedded.scratch import scratch_directory
from regionquota.embedded.standby import copy_of, promote, reach

__all__ = [
    "Child",
    "EmbeddedEtcd",
    "EmbeddedPostgres",
    "ProxyControl",
    "TcpProxy",
    "copy_of",
    "die_with_parent",
    "free_port",
    "free_ports",
    "promote",
    "reach",
    "scratch_directory",
]
