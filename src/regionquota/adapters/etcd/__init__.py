"""The ports `AllocationStore` and `Directory` over an etcd cluster."""

import os

# gRPC reads this when it is imported. On by default, it starts threads in every forked child, where they crash
# one subprocess in ten between fork and exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from regionquota.adapters.etcd.client import EtcdClient
from regionquota.adapters.etcd.history import history

__all__ = ["EtcdClient", "history"]
