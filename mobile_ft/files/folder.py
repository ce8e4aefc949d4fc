"""Replaces a folder or file by a finished one, so that one of the two exists at any time."""

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux


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
        _exchange(scratch, target)
    else:
        scratch.rename(target)
    _sync(target.parent)


def _exchange(a: Path, b: Path) -> None:
    """Exchanges the names of two folders, atomically if the system supports that."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
            return
        error = ctypes.get_errno()
        if error not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(error, os.strerror(error), str(b))
    old = a.with_name(f"{a.name}.old")
    b.rename(old)
    try:
        a.rename(b)
    except OSError:
        old.rename(b)
        raise
    old.rename(a)


def replace_file(scratch: Path, target: Path) -> None:
    """Renames the file `scratch`, on the same file system, to `target`. Raises OSError."""
    _sync(scratch)
    scratch.replace(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
