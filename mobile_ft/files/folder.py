"""Puts a finished folder or file in the place of another, so that one of the two is always there."""

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Linux's


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder beside `target` that takes its place if the block succeeds, else vanishes. Raises OSError."""
    target = target.resolve()  # a link goes on being one
    make_folder(target.parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield scratch
        replace_folder(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_folder(path: Path) -> None:
    """With those above it; on disk when this returns. Raises OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        _sync(path.parent)


def replace_folder(scratch: Path, target: Path) -> None:
    """Gives `scratch`, which lies beside `target`, its name. An older `target` has that of `scratch` then, and is the
    caller's to remove. Raises OSError."""
    scratch.chmod(0o755)
    for path in [*scratch.rglob("*"), scratch]:
        _sync(path)
    if target.exists():
        _exchange(scratch, target)
    else:
        scratch.rename(target)
    _sync(target.parent)


def _exchange(a: Path, b: Path) -> None:
    """Each gets the other's name, at once where the system can do that."""
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
