"""Reads a GGUF file that was split by llama.cpp's gguf-split: NAME-00001-of-00003.gguf and so on, in one folder.

The first part has the model's metadata. Each part has its own tensors, and its number in split.no and split.count.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_file import GgufFile, GgufTensor, read_gguf
from mobile_ft.files.path_text import path_text

_NAME = re.compile(r"(?P<name>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})", re.DOTALL)
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


def whole_gguf(path: Path, file: GgufFile) -> GgufFile:
    """Returns `file`, which was read from `path`, or all parts together if `path` is a part of a split file.

    Raises UserError, with the file's name, if a part is missing or does not belong to the file.
    """
    count = file.fields.get(_COUNT, 1)
    if count == 1:
        return file
    match = _NAME.fullmatch(path.stem)
    number = _integer(path, file.fields, _NUMBER)
    if match is None or (int(match["number"]), int(match["count"])) != (number + 1, count):
        raise UserError(
            f"{path}: is part {number + 1} of {count!r} of a split GGUF file, but its name does not match; rename it"
        )
    parts = dict(_parts(path, match["name"], int(match["count"])))
    tensors: dict[str, GgufTensor] = {}
    for part, read in parts.items():
        for tensor in read.tensors:
            if tensor.name in tensors:
                raise UserError(f"{part}: tensor {tensor.name!r} is also in an earlier part")
            tensors[tensor.name] = tensor
    first, fields = next((part, read.fields) for part, read in parts.items())
    total = _integer(first, fields, _TENSORS)
    if total != len(tensors):
        raise UserError(f"{first}: {_TENSORS} is {total}, but all parts together have {len(tensors)} tensors")
    return GgufFile(fields, list(tensors.values()), _all([read.release for read in parts.values()]))


def model_name(path: Path) -> str:
    """Returns the file's name without the number of the part."""
    match = _NAME.fullmatch(path.stem)
    return path_text(path.stem if match is None else match["name"])


def _parts(path: Path, name: str, count: int) -> Iterator[tuple[Path, GgufFile]]:
    for number in range(count):
        part = path.with_name(f"{name}-{number + 1:05}-of-{count:05}{path.suffix}")
        if not part.is_file():
            raise UserError(
                f"{part}: no such file; {path.name} is one of {count} parts of a GGUF file; put all parts into "
                "one folder"
            )
        read = read_gguf(part)
        if (read.fields.get(_NUMBER), read.fields.get(_COUNT)) != (number, count):
            raise UserError(f"{part}: its {_NUMBER} and {_COUNT} are not those of part {number + 1} of {count}")
        yield part, read


def _integer(path: Path, fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    if type(value) is not int or value < 0:
        raise UserError(f"{path}: metadata {key} is {value!r}; it must be a non-negative integer")
    return value


def _all(calls: list[Callable[[], None]]) -> Callable[[], None]:
    def release() -> None:
        for call in calls:
            call()

    return release
