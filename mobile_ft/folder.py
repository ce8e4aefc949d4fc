"""Puts a finished folder or file in the place of another, so that one of the two is always there."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` that takes its place if the block succeeds, else vanishes. Raises OSError."""
    target = target.resolve()  # a link goes on being one
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def replace_folder(scratch: Path, target: Path) -> None:
    """Renames `scratch`, which lies beside `target`, to it; an older `target` goes only then. Raises OSError."""
    scratch.chmod(0o755)
    for path in [*scratch.iterdir(), scratch]:
        _sync(path)
    old = scratch.with_name(f"{scratch.name}.old")
    replaces = target.exists()
    if replaces:
        target.rename(old)
    try:
        scratch.rename(target)
    except OSError:
        if replaces:
            old.rename(target)
        raise
    if replaces:
        shutil.rmtree(old)
    _sync(target.parent)


def replace_file(scratch: Path, target: Path) -> None:
    """Renames the file `scratch`, of the same file system, to `target`. Raises OSError."""
    _sync(scratch)
    scratch.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
