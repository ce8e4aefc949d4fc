"""Replaces a folder or file by a finished one, so that one of the two exists at any time."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mobile_ft.files.disk import exchange, sync_to_disk


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields a folder beside `target`. It replaces `target` if the block succeeds, and is deleted otherwise. Raises
    OSError."""
    target = target.resolve()  # replaces the target of a link, not the link
    make_folder(target.parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, and syncs them to disk. Raises OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def replace_folder(scratch: Path, target: Path) -> None:
    """Renames `scratch`, which is beside `target`, to `target`. An older `target` gets the name of `scratch`, and the
    caller must remove it. Raises OSError."""
    scratch.chmod(0o755)
    for path in [*scratch.rglob("*"), scratch]:
        _sync(path)
    if target.exists():
        exchange(scratch, target)
    else:
        scratch.rename(target)
    _sync(target.parent)


def replace_file(scratch: Path, target: Path) -> None:
    """Renames the file `scratch`, on the same file system, to `target`. Raises OSError."""
    _sync(scratch)
    scratch.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_to_disk(descriptor)
    finally:
        os.close(descriptor)
