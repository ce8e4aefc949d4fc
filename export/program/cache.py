"""Caches programs, so that the next export of the same architecture does not need torch.

A file of the cache has a line with the SHA-256 of the rest, a line of JSON, and program.pte. If a file is damaged or
belongs to another key, the program is built again.
"""

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mobile_ft.export.program.program import KindMethods, Program, ProgramSpec
from mobile_ft.files.folder import make_folder, replace_file

_MOST_BYTES = 32_000_000  # limit of all programs together, about 300


def cached_program(spec: ProgramSpec) -> Program:
    """Returns the program of `spec`. Builds it if it is not in the cache."""
    key, folder = _key(spec), _folder()
    if folder is None:
        return build(spec)
    file = folder / key
    program = _read(file, key)
    if program is None:
        program = build(spec)
        with suppress(OSError):  # disk full, or no permission; the next export builds it again
            _write(file, key, program)
            _drop_oldest(folder)
    return program


def build(spec: ProgramSpec) -> Program:
    """Builds the program of `spec`, without the cache."""
    from mobile_ft.export.program.build import build_program

    return build_program(spec)


def _folder() -> Path | None:
    """Returns $XDG_CACHE_HOME/mobile-ft/programs, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "mobile-ft" / "programs" if os.path.isabs(base) else None


def _key(spec: ProgramSpec) -> str:
    decides = asdict(spec)
    for config in (decides["config"], *(unit["config"] for unit in decides["units"])):
        del config["name"]
    made_by = [version("torch"), version("executorch"), list(sys.version_info[:2]), _code()]
    return hashlib.sha256(json.dumps([decides, made_by], sort_keys=True).encode()).hexdigest()


@cache
def _code() -> str:
    """Returns the hash of the code that traces and lowers."""
    import mobile_ft.export.program as program
    import mobile_ft.model as model

    sha = hashlib.sha256()
    for package in (model, program):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            sha.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def _read(file: Path, key: str) -> Program | None:
    try:
        content = file.read_bytes()
        checksum, _, rest = content.partition(b"\n")
        if checksum.decode() != hashlib.sha256(rest).hexdigest():
            return None
        head, _, data = rest.partition(b"\n")
        fields: dict[str, Any] = json.loads(head)
        if fields["key"] != key:
            return None
        kinds = {kind: KindMethods(**methods) for kind, methods in fields["kinds"].items()}
        program = Program(data, kinds, fields["head_tokens"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    with suppress(OSError):  # the cache may be read-only
        os.utime(file)  # marks it as recently used
    return program


def _write(file: Path, key: str, program: Program) -> None:
    kinds = {kind: asdict(methods) for kind, methods in program.kinds.items()}
    head = json.dumps({"key": key, "kinds": kinds, "head_tokens": program.head_tokens})
    rest = head.encode() + b"\n" + program.data
    make_folder(file.parent)
    handle, scratch = tempfile.mkstemp(prefix=".", dir=file.parent)
    try:
        with open(handle, "wb") as out:
            out.write(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        replace_file(Path(scratch), file)
    finally:
        Path(scratch).unlink(missing_ok=True)


def _drop_oldest(folder: Path) -> None:
    """Deletes the least recently used programs until the others fit."""
    files = sorted(((path.stat(), path) for path in folder.iterdir()), key=lambda each: each[0].st_mtime, reverse=True)
    total = 0
    for stat, path in files:
        total += stat.st_size
        if total > _MOST_BYTES:
            path.unlink(missing_ok=True)
