"""What a power cut may leave on disk, from the journal that faults.c keeps.

The model is what POSIX promises and no more: a file's data is on disk once the file was synced, a name once its folder
was. All else may be there or not: names in the order of the calls, or without one of them, or only one; data as it was
synced last, whole, torn in the middle, as zeros, or with its first block as zeros.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Union

_RECORD = struct.Struct("<iiiiQIIQ")
_NAMES: tuple[str, ...] = (
    "open",
    "write",
    "truncate",
    "allocate",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "sync",
    "close",
    "dup",
)
_NAMES += ("told", "unknown")  # what was written to stdout, and what no replay can tell
_BLOCK = 4096
_EXCHANGE = 2  # of renameat2
_KEPT, _SYNCED = "kept", "synced"
_DATA = (_KEPT, _SYNCED, "torn", "zeros", "hole")

State = dict[str, bytes]  # content by path below the folder; that of a folder, which ends with /, is empty


@dataclass(frozen=True)
class Call:
    name: str
    result: int
    fd: int
    number: int  # counted from 0; -1 where the call cannot be made to fail
    offset: int
    path: str
    other: str
    data: bytes


@dataclass(eq=False)
class File:
    data: bytes = b""
    synced: bytes = b""


@dataclass(eq=False)
class Folder:
    entries: dict[str, "Node"] = field(default_factory=dict)
    synced: dict[str, "Node"] = field(default_factory=dict)
    pending: list[tuple[int, str, Union["Node", None]]] = field(default_factory=list)  # call, name, what it became


Node = File | Folder


def read_journal(path: Path) -> list[Call]:
    data, at, calls = path.read_bytes(), 0, []
    while at < len(data):
        op, result, fd, number, offset, *sizes = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        parts = []
        for size in sizes:
            parts.append(data[at : at + size])
            at += size
        calls.append(Call(_NAMES[op - 1], result, fd, number, offset, parts[0].decode(), parts[1].decode(), parts[2]))
    return calls


def read_folder(root: Path) -> State:
    return {
        str(path.relative_to(root)) + "/" * path.is_dir(): b"" if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def write_folder(root: Path, state: State) -> None:
    for path, data in sorted(state.items()):
        if path.endswith("/"):
            (root / path).mkdir(parents=True)
        else:
            (root / path).write_bytes(data)


class Disk:
    """The folder `root` with the content `state`, all of it synced, as `apply` changes it."""

    def __init__(self, root: Path, state: State) -> None:
        self._root, self._top, self._fds = root, Folder(), dict[int, Node]()
        self._call = 0
        for path, data in sorted(state.items()):
            folder, name = self._place(str(root / path.rstrip("/")))
            folder.entries[name] = Folder() if path.endswith("/") else File(data, data)
            folder.synced = dict(folder.entries)

    def apply(self, call: Call) -> None:
        assert call.name != "unknown", f"{call.path} {call.other}: goes past the journal"
        self._call += 1
        if call.result < 0 or call.name == "told":
            return
        getattr(self, f"_{call.name}")(call)

    def kept(self) -> State:
        """What the folder holds while the power is on."""
        return self._state(set(self._calls()), _KEPT)

    def after_power_cut(self) -> Iterator[State]:
        """What it may hold after the power was cut; some more than once."""
        calls = self._calls()
        for count in range(len(calls), -1, -1):
            for data in _DATA:
                yield self._state(set(calls[:count]), data)
        for call in calls if len(calls) > 1 else ():
            for data in (_KEPT, _SYNCED):
                yield self._state({call}, data)
                yield self._state(set(calls) - {call}, data)

    def _calls(self) -> list[int]:
        """That made or took names which are not synced."""
        found, folders = set[int](), [self._top]
        seen = set[int]()
        while folders:
            folder = folders.pop()
            if id(folder) in seen:
                continue
            seen.add(id(folder))
            found |= {call for call, _, _ in folder.pending}
            nodes = [*folder.entries.values(), *folder.synced.values(), *(node for _, _, node in folder.pending)]
            folders += [node for node in nodes if isinstance(node, Folder)]
        return sorted(found)

    def _state(self, calls: set[int], data: str) -> State:
        state: State = {}

        def visit(folder: Folder, prefix: str) -> None:
            entries = dict(folder.synced)
            for call, name, node in folder.pending:
                if call in calls:
                    entries.pop(name, None)
                    if node is not None:
                        entries[name] = node
            for name, node in entries.items():
                if isinstance(node, Folder):
                    state[f"{prefix}{name}/"] = b""
                    visit(node, f"{prefix}{name}/")
                else:
                    state[prefix + name] = _after(node.data, node.synced, data)

        visit(self._top, "")
        return state

    def _place(self, path: str) -> tuple[Folder, str]:
        *folders, name = os.path.relpath(path, self._root).split("/")
        at = self._top
        for part in folders:
            found = at.entries[part]
            assert isinstance(found, Folder)
            at = found
        return at, name

    def _set(self, path: str, node: Node | None) -> Node | None:
        folder, name = self._place(path)
        before = folder.entries.pop(name, None)
        if node is not None:
            folder.entries[name] = node
        folder.pending.append((self._call, name, node))
        return before

    def _open(self, call: Call) -> None:
        if Path(call.path) == self._root:
            self._fds[call.fd] = self._top
            return
        folder, name = self._place(call.path)
        node = folder.entries.get(name)
        if node is None:
            node = File()
            self._set(call.path, node)
        elif isinstance(node, File) and call.offset & os.O_TRUNC:
            node.data = b""
        self._fds[call.fd] = node

    def _file(self, fd: int) -> File:
        node = self._fds[fd]
        assert isinstance(node, File)
        return node

    def _write(self, call: Call) -> None:
        file, end = self._file(call.fd), call.offset + len(call.data)
        file.data = file.data[: call.offset].ljust(call.offset, b"\0") + call.data + file.data[end:]

    def _truncate(self, call: Call) -> None:
        file = self._file(call.fd)
        file.data = file.data[: call.offset].ljust(call.offset, b"\0")

    def _allocate(self, call: Call) -> None:
        file = self._file(call.fd)
        file.data = file.data.ljust(call.offset, b"\0")

    def _rename(self, call: Call) -> None:
        moved = self._set(call.path, None)
        other = self._set(call.other, moved)
        if call.offset & _EXCHANGE:
            self._set(call.path, other)

    def _unlink(self, call: Call) -> None:
        self._set(call.path, None)

    _rmdir = _unlink

    def _mkdir(self, call: Call) -> None:
        self._set(call.path, Folder())

    def _sync(self, call: Call) -> None:
        node = self._fds[call.fd]
        if isinstance(node, File):
            node.synced = node.data
        else:
            node.synced = dict(node.entries)
            node.pending.clear()

    def _close(self, call: Call) -> None:
        del self._fds[call.fd]

    def _dup(self, call: Call) -> None:
        self._fds[call.fd] = self._fds[call.offset]


@lru_cache(1000)
def _after(now: bytes, synced: bytes, data: str) -> bytes:
    """A file's content where what was not synced of it became `data`."""
    if data == _KEPT or now == synced:
        return now
    if data == _SYNCED:
        return synced
    same = len(synced) if now.startswith(synced) else len(os.path.commonprefix([now, synced]))
    if data == "torn":
        return now[: (same + len(now)) // 2]
    end = len(now) if data == "zeros" else min(len(now), same // _BLOCK * _BLOCK + _BLOCK)
    return now[:same] + bytes(end - same) + now[end:]
