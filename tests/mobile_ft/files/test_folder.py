"""Folders that take the place of others; tests/faults has what a power cut leaves of them."""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from mobile_ft.files.disk import exchange
from mobile_ft.files.folder import make_folder, new_folder


class MacOS:
    """A library that has macOS' call. Its folders are exchanged by that of Linux."""

    def renamex_np(self, a: bytes, b: bytes, flags: int) -> int:
        assert flags == 2  # RENAME_SWAP
        if not Path(os.fsdecode(b)).exists():
            ctypes.set_errno(errno.ENOENT)
            return -1
        for old, new in ((a, a + b"."), (b, a), (a + b".", b)):
            os.rename(old, new)
        return 0


@pytest.mark.parametrize("library", [None, MacOS(), object()], ids=["Linux", "macOS", "in two steps"])
def test_a_folder_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object | None
) -> None:
    if library is not None:
        monkeypatch.setattr("mobile_ft.files.disk.ctypes.CDLL", lambda *_, **__: library)
    target = tmp_path / "above" / "target"
    for number in range(3):
        with new_folder(target) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / f"file{number}").write_text(str(number))
        assert [path.name for path in target.rglob("*")] == ["sub", f"file{number}"]
        assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("library", [None, MacOS()], ids=["Linux", "macOS"])
def test_a_folder_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: object | None) -> None:
    if library is not None:
        monkeypatch.setattr("mobile_ft.files.disk.ctypes.CDLL", lambda *_, **__: library)
    make_folder(tmp_path / "a")
    with pytest.raises(OSError, match="No such file or directory"):
        exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").is_dir()


def test_files_are_written_to_the_disk_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("mobile_ft.files.disk._FULL_SYNC", 51)  # F_FULLFSYNC
    monkeypatch.setattr("mobile_ft.files.disk.fcntl.fcntl", lambda _, command: synced.append(command))
    monkeypatch.setattr("mobile_ft.files.disk.os.fsync", lambda _: pytest.fail("it stays in the disk's cache"))
    make_folder(tmp_path / "new")
    assert synced == [51]


def test_a_disk_without_full_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("mobile_ft.files.disk._FULL_SYNC", -1)  # no command of Linux
    monkeypatch.setattr("mobile_ft.files.disk.os.fsync", synced.append)
    make_folder(tmp_path / "new")
    assert len(synced) == 1


def test_a_block_that_fails_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    make_folder(target / "old")
    with pytest.raises(OSError, match="full"), new_folder(target):
        raise OSError("full")
    assert list(tmp_path.rglob("*")) == [target, target / "old"]
