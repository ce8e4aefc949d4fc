"""Reads a GGUF file: its metadata as plain values, and the locations of its tensors.

It uses the constants of the package gguf. Unlike that package's reader, it does not create an object for every item of
an array, and it checks each length and offset against the file before it is used.
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from mobile_ft.errors import UserError
from mobile_ft.files.git_lfs import check_no_pointer
from mobile_ft.model.formats import U8

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_VALUES = 1 << 23  # limit of all arrays together
_MOST_DIMENSIONS = 4
_ALIGNMENT = 32
_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "?",
}


@dataclass(frozen=True)
class GgufTensor:
    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]  # in the file's order, columns before rows
    data: U8  # mapped bytes


@dataclass(frozen=True)
class GgufFile:
    fields: dict[str, Any]
    tensors: list[GgufTensor]
    release: Callable[[], None]  # drops the pages that were read from this process's memory


def read_gguf(path: Path) -> GgufFile:
    """Maps the file. Raises UserError, with its name, if it is not a GGUF file."""
    check_no_pointer(path)
    try:
        if path.stat().st_size < len(_MAGIC):  # an empty file cannot be mapped
            raise ValueError("not a GGUF file")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        fields, tensors = _read(np.frombuffer(mapped, np.uint8))
        return GgufFile(fields, tensors, lambda: mapped.madvise(mmap.MADV_DONTNEED))
    except (ValueError, struct.error) as error:
        raise UserError(f"{path}: not a readable GGUF file, or truncated ({error})") from None


class _Reader:
    """Reads the beginning of the file."""

    def __init__(self, data: U8) -> None:
        self._data = memoryview(data)  # type: ignore[arg-type]
        self.place = 0
        self._values = _MOST_VALUES

    def take(self, size: int) -> memoryview:
        if size > len(self._data) - self.place:
            raise ValueError(f"it ends before byte {self.place + size}")
        self.place += size
        return self._data[self.place - size : self.place]

    def number(self, form: str = "<Q") -> int:
        (number,) = struct.unpack_from(form, self._data, self.place)  # raises struct.error at the end of the file
        self.place += struct.calcsize(form)
        return int(number)

    def count(self) -> int:
        count = self.number()
        self._values -= count
        if self._values < 0:
            raise ValueError(f"more than {_MOST_VALUES} values")
        return count

    def text(self) -> str:
        return str(self.take(self.number()), "utf-8")

    def value(self, kind: int) -> Any:
        if kind == GGUFValueType.STRING:
            return self.text()
        if kind != GGUFValueType.ARRAY:
            return self._scalars(kind, 1)[0]
        kind, count = self.number("<I"), self.count()
        if kind == GGUFValueType.STRING:
            return [self.text() for _ in range(count)]
        return self._scalars(kind, count)

    def _scalars(self, kind: int, count: int) -> list[Any]:
        if kind not in _SCALARS:  # also for arrays of arrays
            raise ValueError(f"metadata type {kind} is not supported")
        dtype = np.dtype(_SCALARS[GGUFValueType(kind)])
        values: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return values


def _read(data: U8) -> tuple[dict[str, Any], list[GgufTensor]]:
    reader = _Reader(data)
    if bytes(reader.take(4)) != _MAGIC:
        raise ValueError("not a GGUF file")
    version = reader.number("<I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version}; supported: {', '.join(map(str, _VERSIONS))}")
    tensor_count, field_count = reader.count(), reader.count()
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = reader.text()
        if key in fields:
            raise ValueError(f"metadata {key!r} is repeated")
        fields[key] = reader.value(reader.number("<I"))
    heads = [_tensor_head(reader) for _ in range(tensor_count)]
    alignment = fields.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError(f"metadata general.alignment is {alignment!r}; it must be a positive integer")
    base = -(-reader.place // alignment) * alignment
    tensors = {name: _tensor(data, name, kind, shape, base + offset) for name, kind, shape, offset in heads}
    if len(tensors) < len(heads):
        raise ValueError("two tensors have the same name")
    return fields, list(tensors.values())


def _tensor_head(reader: _Reader) -> tuple[str, int, tuple[int, ...], int]:
    name, dimensions = reader.text(), reader.number("<I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {dimensions} dimensions; at most {_MOST_DIMENSIONS} are supported")
    shape = tuple(reader.number() for _ in range(dimensions))
    return name, reader.number("<I"), shape, reader.number()


def _tensor(data: U8, name: str, kind: int, shape: tuple[int, ...], start: int) -> GgufTensor:
    try:
        tensor_type = GGMLQuantizationType(kind)
    except ValueError:
        raise ValueError(f"tensor {name!r} has the unknown type {kind}") from None
    block, block_bytes = GGML_QUANT_SIZES[tensor_type]
    if not shape or shape[0] % block:
        raise ValueError(
            f"tensor {name!r} of type {tensor_type.name} has shape {list(reversed(shape))}; its rows must be a "
            f"multiple of {block}"
        )
    end = start + math.prod(shape) // block * block_bytes
    if end > len(data):
        raise ValueError(f"tensor {name!r} ends at byte {end}, but the file has {len(data)}")
    return GgufTensor(name, tensor_type, shape, data[start:end])
