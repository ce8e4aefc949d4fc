"""A temporary folder for large files."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields a temporary folder, on a disk if possible: /tmp is often in memory, and its files would count as
    memory."""
    parent = None if "TMPDIR" in os.environ or not os.access("/var/tmp", os.W_OK) else "/var/tmp"
    with tempfile.TemporaryDirectory(prefix="mobile-ft-", dir=parent) as folder:
        yield Path(folder)
