"""Folders that take the place of others; tests/faults has what a power cut leaves of them."""

from pathlib import Path

import pytest

from mobile_ft.files.folder import make_folder, new_folder


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in two steps"])
def test_a_folder_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    if not at_once:
        monkeypatch.setattr("mobile_ft.files.folder.ctypes.CDLL", lambda *_, **__: object())
    target = tmp_path / "above" / "target"
    for number in range(3):
        with new_folder(target) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / f"file{number}").write_text(str(number))
        assert [path.name for path in target.rglob("*")] == ["sub", f"file{number}"]
        assert list(target.parent.iterdir()) == [target]


def test_a_block_that_fails_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    make_folder(target / "old")
    with pytest.raises(OSError, match="full"), new_folder(target):
        raise OSError("full")
    assert list(tmp_path.rglob("*")) == [target, target / "old"]
