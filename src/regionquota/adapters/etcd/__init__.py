"""The ports `AllocationStore` and `Directory` over an etcd cluster."""

from regionquota.adapters.etcd.client import EtcdClient
from regionquota.adapters.etcd.codec import UnreadableDocument
from regionquota.adapters.etcd.history import history

__all__ = ["EtcdClient", "UnreadableDocument", "history"]
