"""Parses untrusted JSON: limits keep it from using much more memory than its text, or from exhausting the stack."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.files.git_lfs import check_no_pointer

MOST_BYTES = 64 << 20  # size of a file
_MOST_DEPTH = 64
_MOST_PARTS = 1 << 21  # strings, brackets and commas
_PARTS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{},]', re.DOTALL)


def parse_json(text: str) -> Any:
    """Parses a JSON text. Raises ValueError if it is not valid, is nested too deeply or has too many values."""
    if text.count("[") + text.count("{") > _MOST_DEPTH or text.count(",") > _MOST_PARTS:
        _check_parts(text)
    return json.loads(text)


def read_json_object(path: Path, wanted: str, check: Callable[[bytes], None] = lambda content: None) -> dict[str, Any]:
    """Reads a JSON object from a file. Calls `check` with the content first.

    Raises UserError, with the file's name and the text `wanted`, if the file does not contain one.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; {wanted}")
    check_no_pointer(path)
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise UserError(f"{path}: {size} bytes, but at most {MOST_BYTES} are supported; {wanted}")
    content = path.read_bytes()
    check(content)
    try:
        value = parse_json(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); {wanted}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a JSON object, not a {type(value).__name__}; {wanted}")
    return value


def _check_parts(text: str) -> None:
    depth = 0
    for number, part in enumerate(_PARTS.finditer(text)):
        mark = text[part.start()]
        depth += (mark in "[{") - (mark in "]}")
        if depth > _MOST_DEPTH:
            raise ValueError(f"brackets nested deeper than {_MOST_DEPTH}")
        if number > _MOST_PARTS:
            raise ValueError(f"more than {_MOST_PARTS} strings, brackets and commas")
