"""What commands write: warnings, tables and JSON files."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from safetensors import SafetensorError

from mobile_ft.errors import UserError


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"mobile-ft: warning: {message}", file=sys.stderr)


def print_table(title: str, rows: Mapping[str, str]) -> None:
    """A table of names and values on standard output."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(Text(name), Text(value, overflow="fold"))  # Text: brackets in a path are no markup
    Console().print(table)


def megabytes(size: float) -> str:
    """Bytes as megabytes, 10^6 bytes each; small files keep their kilobytes."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of the block, a full disk say, name the file. (A failed write itself knows no name.)"""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror or error}") from error
    except SafetensorError as error:  # in place of OSError
        raise UserError(f"{path}: {error}") from error


def check_json_path(path: Path | None) -> None:
    """Raises UserError now where `write_json` would fail after hours of work."""
    check_output_path("--json", path)


def check_output_path(option: str, path: Path | None) -> None:
    """Raises UserError where the file `path`, given as `option`, could not be written."""
    if path is None:
        return
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {path}: not a regular file")


def write_json(path: Path | None, values: Mapping[str, Any]) -> None:
    """Writes `values`; the file is whole or untouched, even if power fails. Does nothing without a path."""
    if path is None:
        return
    path = path.resolve()  # a link goes on being one
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        with partial.open("w", encoding="utf-8") as file:
            json.dump(values, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
