"""Lowers what several tests export alike only once: for tiny models that is most of an export's time."""

import hashlib
import os
from pathlib import Path
from typing import Any, BinaryIO

from mobile_ft.export.lower import lower
from mobile_ft.export.trace import Method


class _Program:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write_to_file(self, file: BinaryIO) -> None:
        file.write(self._path.read_bytes())


class LoweringCache:
    """Stands for `lower`. `folder` belongs to one run of the tests, whose processes share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, methods: dict[str, Method]) -> Any:
        # The graphs, with the shapes, dtypes and ranges of all that is in them; not where in the source they are from.
        lines = (line for name, method in methods.items() for line in f"{name} {method.program}".splitlines())
        text = "\n".join(line for line in lines if not line.lstrip().startswith("# File:"))
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.pte"
        if not path.exists():
            scratch = path.with_suffix(f".{os.getpid()}")
            with scratch.open("wb") as file:
                lower(methods).write_to_file(file)
            scratch.rename(path)
        return _Program(path)
