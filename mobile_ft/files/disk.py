"""What Linux and macOS have different calls for: writing to the disk itself, and exchanging two names."""

import ctypes
import errno
import fcntl
import os
from pathlib import Path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
_RENAME_SWAP = 2  # of macOS
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)  # of macOS, whose fsync leaves data in the disk's cache


def sync_to_disk(descriptor: int) -> None:
    """Writes a file's data, or the names in a folder, to the disk itself. Raises OSError."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        except OSError:  # some file systems have no full sync
            pass
    os.fsync(descriptor)


def exchange(a: Path, b: Path) -> None:
    """Exchanges the names of two folders, atomically if the system supports that. Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(a), os.fsencode(b)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    elif hasattr(library, "renamex_np"):
        failed = library.renamex_np(*names, _RENAME_SWAP)
    else:
        return _exchange_in_steps(a, b)
    if failed == 0:
        return None
    error = ctypes.get_errno()
    if error not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP):
        raise OSError(error, os.strerror(error), str(b))
    return _exchange_in_steps(a, b)


def _exchange_in_steps(a: Path, b: Path) -> None:
    old = a.with_name(f"{a.name}.old")
    b.rename(old)
    try:
        a.rename(b)
    except OSError:
        old.rename(b)
        raise
    old.rename(a)
