"""A hard memory limit for a child process: a memory cgroup where one can be made, else RLIMIT_DATA."""

import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

EnforcedBy = Literal["cgroup-v2", "cgroup-v1", "rlimit-data", "sampling"]


class Limit:
    """No limit: memory is only watched."""

    enforced_by: EnforcedBy = "sampling"

    def confine(self) -> None:
        """Called in the child before it becomes another program."""

    def usage(self) -> int:
        """Bytes that count against the limit, where the kernel tells; page cache may be among them."""
        return 0

    def explains(self, failure: str) -> bool:
        """Whether it was the limit that ended the child, whose error is `failure`."""
        return False


@dataclass(frozen=True)
class _Files:
    """What the two versions call the files of a cgroup."""

    limit: str
    swap: str
    usage: str
    events: str


_FILES: dict[EnforcedBy, _Files] = {
    "cgroup-v2": _Files("memory.max", "memory.swap.max", "memory.current", "memory.events"),
    "cgroup-v1": _Files(
        "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"
    ),
}


class CgroupLimit(Limit):
    """A cgroup of its own. Everything counts, page cache and kernel memory too; but not pages that another group has
    read in before, as is likely of the libraries."""

    def __init__(self, version: EnforcedBy, folder: Path) -> None:
        self.enforced_by = version
        self._folder, self._files = folder, _FILES[version]
        self._processes = str(folder / "cgroup.procs")
        if not (folder / self._files.limit).exists():
            raise OSError(f"{folder}: the memory controller is not on")

    def set(self, size: int) -> None:
        """Limits it to `size` bytes of memory, and no swap."""
        (self._folder / self._files.limit).write_text(str(size))
        swap = self._folder / self._files.swap
        if swap.exists():  # version 1 limits the sum of both
            swap.write_text("0" if self.enforced_by == "cgroup-v2" else str(size))

    def confine(self) -> None:
        file = os.open(self._processes, os.O_WRONLY)
        os.write(file, b"0")  # 0: whoever writes
        os.close(file)

    def usage(self) -> int:
        return int((self._folder / self._files.usage).read_text())

    def explains(self, failure: str) -> bool:
        """Killed, or mft-run saw the limit itself."""
        kills = re.search(r"^oom_kill (\d+)$", (self._folder / self._files.events).read_text(), re.MULTILINE)
        return (kills is not None and int(kills[1]) > 0) or failure.startswith("the memory limit is ")

    def remove(self) -> None:
        for _ in range(100):
            try:
                self._folder.rmdir()
                return
            except OSError:  # the child is still going
                time.sleep(0.02)


class DataLimit(Limit):
    """RLIMIT_DATA: private memory that can be written to counts as soon as it is mapped, touched or not; pages of files
    do not."""

    enforced_by = "rlimit-data"

    def __init__(self, size: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        self._size = size if hard == resource.RLIM_INFINITY else min(size, hard)

    def confine(self) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (self._size, self._size))

    def explains(self, failure: str) -> bool:
        """The kernel counts no refusals, so what refused allocations look like has to do."""
        words = r"out of memory|bad_alloc|allocate memory|failed to map segment|temporarily unavailable|signal \d"
        return re.search(words, failure) is not None


@contextmanager
def memory_limit(size: int | None) -> Iterator[Limit]:
    """The hardest limit of `size` bytes that can be had here; None: no limit. It is gone after the block."""
    if size is None:
        yield Limit()
        return
    cgroup = _new_cgroup(size)
    if cgroup is None:
        yield DataLimit(size)
        return
    try:
        yield cgroup
    finally:
        cgroup.remove()


def _new_cgroup(size: int) -> CgroupLimit | None:
    mounts, own = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
    if not (mounts.exists() and own.exists()):
        return None
    for version, parent in cgroup_parents(mounts.read_text(), own.read_text()):
        try:
            folder = Path(tempfile.mkdtemp(prefix="mobile-ft-", dir=parent))
        except OSError:
            continue
        try:
            cgroup = CgroupLimit(version, folder)
            # Moving a process can be forbidden where making a group is not.
            subprocess.run(["true"], preexec_fn=cgroup.confine, check=True)
            cgroup.set(size)
            return cgroup
        except (OSError, subprocess.SubprocessError):
            folder.rmdir()
    return None


def cgroup_parents(mountinfo: str, own: str) -> list[tuple[EnforcedBy, Path]]:
    """Where a memory cgroup might be made, from the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())}
    parents: list[tuple[EnforcedBy, Path]] = []
    for line in mountinfo.splitlines():
        mount, _, kind = line.partition(" - ")
        root, point = mount.split()[3:5]
        filesystem, _, options = kind.split(None, 2)
        if filesystem == "cgroup2" and "" in paths:
            group = _below(point, root, paths[""])
            parents.append(("cgroup-v2", group))
            if group != Path(point):  # a group that holds processes hands no controllers down, its parent might
                parents.append(("cgroup-v2", group.parent))
        elif filesystem == "cgroup" and "memory" in options.split(","):
            for controllers, path in paths.items():
                if "memory" in controllers.split(","):
                    parents.append(("cgroup-v1", _below(point, root, path)))
    return parents


def _below(point: str, root: str, path: str) -> Path:
    """Where the group `path` lies in a mount of the group `root` at `point`."""
    inside = os.path.relpath(path, root)
    return Path(point) if inside.startswith("..") else Path(point, inside)
