"""A hard memory limit for a child process: a memory cgroup if one can be created, else RLIMIT_DATA."""

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
    """No limit: memory is only measured."""

    enforced_by: EnforcedBy = "sampling"

    def confine(self) -> None:
        """Puts the current process under the limit. Called in the child before it executes the command."""

    def usage(self) -> int:
        """Returns the bytes that count against the limit, or 0 if the kernel does not report them. Page cache may be
        included."""
        return 0

    def explains(self, failure: str) -> bool:
        """Whether the limit caused the child's error `failure`."""
        return False


@dataclass(frozen=True)
class _Files:
    """File names of a cgroup, which differ between the two versions."""

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
    """A cgroup for the child alone. Page cache and kernel memory count too, but not pages that another group has read
    before, which is likely for libraries."""

    def __init__(self, version: EnforcedBy, folder: Path) -> None:
        self.enforced_by = version
        self._folder, self._files = folder, _FILES[version]
        self._processes = str(folder / "cgroup.procs")
        if not (folder / self._files.limit).exists():
            raise OSError(f"{folder}: the memory controller is not enabled")

    def set(self, size: int) -> None:
        """Sets the limit to `size` bytes of memory, without swap."""
        (self._folder / self._files.limit).write_text(str(size))
        swap = self._folder / self._files.swap
        if swap.exists():  # version 1 limits the sum of memory and swap
            swap.write_text("0" if self.enforced_by == "cgroup-v2" else str(size))

    def confine(self) -> None:
        file = os.open(self._processes, os.O_WRONLY)
        os.write(file, b"0")  # 0 is the writing process
        os.close(file)

    def usage(self) -> int:
        return int((self._folder / self._files.usage).read_text())

    def explains(self, failure: str) -> bool:
        """Checks whether the kernel killed the child, or mft-run itself reported the limit."""
        kills = re.search(r"^oom_kill (\d+)$", (self._folder / self._files.events).read_text(), re.MULTILINE)
        return (kills is not None and int(kills[1]) > 0) or failure.startswith("the memory limit is ")

    def remove(self) -> None:
        for _ in range(100):
            try:
                self._folder.rmdir()
                return
            except OSError:  # the child is still ending
                time.sleep(0.02)


class DataLimit(Limit):
    """RLIMIT_DATA: writable private memory counts as soon as it is mapped, even if it is not touched. Pages of files do
    not count."""

    enforced_by = "rlimit-data"

    def __init__(self, size: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        self._size = size if hard == resource.RLIM_INFINITY else min(size, hard)

    def confine(self) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (self._size, self._size))

    def explains(self, failure: str) -> bool:
        """Looks for typical errors of failed allocations, because the kernel does not count them."""
        words = r"out of memory|bad_alloc|allocate memory|failed to map segment|temporarily unavailable|signal \d"
        return re.search(words, failure) is not None


@contextmanager
def memory_limit(size: int | None) -> Iterator[Limit]:
    """Yields the strictest available limit of `size` bytes (None: no limit). It is removed after the block."""
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
            # A system can allow creating a group but forbid moving a process.
            subprocess.run(["true"], preexec_fn=cgroup.confine, check=True)
            cgroup.set(size)
            return cgroup
        except (OSError, subprocess.SubprocessError):
            folder.rmdir()
    return None


def cgroup_parents(mountinfo: str, own: str) -> list[tuple[EnforcedBy, Path]]:
    """Returns candidates for the parent of a memory cgroup, from /proc/self/mountinfo and /proc/self/cgroup."""
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in own.splitlines())}
    parents: list[tuple[EnforcedBy, Path]] = []
    for line in mountinfo.splitlines():
        mount, _, kind = line.partition(" - ")
        root, point = mount.split()[3:5]
        filesystem, _, options = kind.split(None, 2)
        if filesystem == "cgroup2" and "" in paths:
            group = _below(point, root, paths[""])
            parents.append(("cgroup-v2", group))
            if group != Path(
                point
            ):  # a group with processes cannot have child groups with controllers, but its parent may
                parents.append(("cgroup-v2", group.parent))
        elif filesystem == "cgroup" and "memory" in options.split(","):
            for controllers, path in paths.items():
                if "memory" in controllers.split(","):
                    parents.append(("cgroup-v1", _below(point, root, path)))
    return parents


def _below(point: str, root: str, path: str) -> Path:
    """Returns the folder of the group `path` in a mount of the group `root` at `point`."""
    inside = os.path.relpath(path, root)
    return Path(point) if inside.startswith("..") else Path(point, inside)
