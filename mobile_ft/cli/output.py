"""Prints warnings and tables."""

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mobile_ft.api.files import check_output_path
from mobile_ft.errors import MobileFtWarning, one_line


def warn(message: object) -> None:
    """Prints a warning as one line on standard error."""
    print(f"mobile-ft: warning: {message}", file=sys.stderr)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Prints the library's warnings as lines on standard error, each time one is raised."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(
            message: Warning | str, category: type[Warning], filename: str, lineno: int, *more: TextIO | str | None
        ) -> None:
            if issubclass(category, MobileFtWarning):
                warn(message)
            else:
                show(message, category, filename, lineno, *more)  # type: ignore[arg-type]

        warnings.simplefilter("always", MobileFtWarning)
        warnings.showwarning = show_line  # type: ignore[assignment]
        yield


def print_table(title: str, rows: Mapping[str, str]) -> None:
    """Prints a table of names and values on standard output."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(
            Text(name), Text(one_line(value), overflow="fold")
        )  # Text, so that brackets in a path are not markup
    Console().print(table)


def check_json_path(path: Path | None) -> None:
    """Raises UserError early if `write_json` would fail at the end of the run."""
    check_output_path("--json", path)
