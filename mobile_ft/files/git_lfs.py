"""Pointers of git-lfs: small text files that a clone has in place of large files that were not fetched."""

from pathlib import Path

from mobile_ft.errors import UserError

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"


def check_no_pointer(path: Path) -> None:
    """Raises UserError, with the file's name, if it is a pointer."""
    if is_pointer(path):
        raise UserError(
            f"{path}: is a git-lfs pointer, not the file itself; run `git lfs pull` in {path.parent} to fetch it"
        )


def is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False  # the reader of the file reports the error
