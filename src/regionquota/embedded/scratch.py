"""Temporary directories that an embedded Postgres can use."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_directory(prefix: str = "regionquota-") -> Iterator[Path]:
    """A temporary directory, removed afterwards. Others may pass through it, but not look.

    pytest's tmp_path will not do as root: its parents are closed to the user that Postgres runs as.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        if os.geteuid() == 0:
            directory.chmod(0o711)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
