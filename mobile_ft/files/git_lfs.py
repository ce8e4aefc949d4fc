"""Pointers of git-lfs: small texts that a clone has in place of large files which were not fetched."""

from pathlib import Path

from mobile_ft.errors import UserError

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"


def check_no_pointer(path: Path) -> None:
    """Raises UserError naming the file where it is a pointer."""
    if is_pointer(path):
        raise UserError(
            f"{path}: a pointer of git-lfs in place of the file; run `git lfs pull` in {path.parent}, which fetches it"
        )


def is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False  # whatever reads the file says why
