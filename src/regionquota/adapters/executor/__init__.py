"""The executor over HTTP."""

from regionquota.adapters.executor.client import HttpExecutor

__all__ = ["HttpExecutor"]
