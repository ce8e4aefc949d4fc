"""Writes files atomically, and names them in errors."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mobile_ft.errors import UserError
from mobile_ft.files.folder import replace_file


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of the block, such as a full disk, name the file. (The OSError of a failed write has no file name.)"""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename2 or error.filename or path}: {error.strerror or error}") from error
    except SafetensorError as error:  # raised instead of OSError
        raise UserError(f"{path}: {error}") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder during the block, as runs of the runtime do, and creates it. Raises UserError if one goes on."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UserError(f"{folder}: another run is writing to this folder") from error
    except OSError:  # some file systems do not support locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def check_output_path(name: str, path: Path | None) -> None:
    """Raises UserError if the file `path`, the value of the option `name`, cannot be written."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise UserError(f"{name} {path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():
        raise UserError(f"{name} {path}: not a regular file")


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8. The file is replaced as a whole or not at all, even if power fails."""
    path = path.resolve()  # replaces the target of a link, not the link
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        try:
            partial.write_text(text, encoding="utf-8")
            replace_file(partial, path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def write_json(path: Path | None, values: Mapping[str, Any]) -> None:
    """Writes `values` as JSON, as `write_text` does. Does nothing if `path` is None."""
    if path is not None:
        write_text(path, json.dumps(values, indent=1) + "\n")
