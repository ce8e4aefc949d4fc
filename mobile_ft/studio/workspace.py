"""The folder of a studio. A page names what is in it, and never sends a path into it."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from mobile_ft.errors import UserError

_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Workspace:
    """What a studio has: bundles, data files and runs. Bundles and data from elsewhere are links."""

    folder: Path

    def __post_init__(self) -> None:
        for part in (self.models, self.exports, self.data, self.runs, self.made):
            part.mkdir(parents=True, exist_ok=True)

    @property
    def models(self) -> Path:
        return self.folder / "models"

    @property
    def exports(self) -> Path:
        """Of each model that was exported here, its process."""
        return self.folder / "exports"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def made(self) -> Path:
        """What was made from adapters for other programs."""
        return self.folder / "made"

    def model(self, name: str) -> Path:
        return found(self.models, name)

    def rows(self, name: str) -> Path:
        return found(self.data, name)

    def run(self, name: str) -> Path:
        return found(self.runs, name)


def names(folder: Path) -> list[str]:
    """Names of what is in a folder, the newest first."""
    entries = [entry for entry in folder.iterdir() if _NAME.fullmatch(entry.name) and entry.exists()]
    return [entry.name for entry in sorted(entries, key=lambda entry: entry.lstat().st_mtime, reverse=True)]


def found(folder: Path, name: str) -> Path:
    """Returns what has this name. Raises UserError if nothing has."""
    path = place(folder, name)
    if not path.exists():
        raise UserError(f"{folder.name} {name}: there is none of this name")
    return path


def place(folder: Path, name: str) -> Path:
    """Returns the path for a name. Raises UserError if it is not the name of a file."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UserError(f"name {name!r}: use letters, digits, dots, dashes and underscores, no dot first, at most 100")
    return folder / name


def free_place(folder: Path, name: str) -> Path:
    """Returns the path for a name; with a number, if it is taken."""
    path = place(folder, name)
    number = 1
    while os.path.lexists(path):
        number += 1
        path = place(folder, f"{Path(name).stem}-{number}{Path(name).suffix}")
    return path


def typed_path(text: str) -> Path:
    """Returns the path of something on this computer that a person typed."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # ~NAME of nobody
        raise UserError(f"{text}: {error}") from error


def remove(path: Path) -> None:
    """Removes a file, a folder, or a link, but never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def new_place(folder: Path, name: str) -> Path:
    """Returns the path for a new name. Raises UserError if it is taken."""
    path = place(folder, name)
    if os.path.lexists(path):
        raise UserError(f"name {name}: is taken; choose another")
    return path
