"""Builds the index of a `weights.ptd` (ExecuTorch's FlatTensor) without ExecuTorch, with the same bytes as its
serializer.

The schema is executorch/extension/flat_tensor/serialize/flat_tensor.fbs. A header of fixed fields follows the file's
identifier.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatbuffers import Builder

_VERSION = 0
_IDENTIFIER = b"FT01"
_HEADER = struct.Struct("<4sIQQQQ")  # magic, length, flatbuffer's offset and size, data's offset and size
_HEADER_MAGIC = b"FH01"
_HEADER_SIZE = 48  # size of _HEADER, aligned to 16 bytes
_SCALAR_TYPES = {"uint8": 0, "float32": 6}  # ExecuTorch's values of ScalarType


@dataclass(frozen=True)
class PlacedTensor:
    name: str
    dtype: str  # uint8 or float32
    shape: tuple[int, ...]
    offset: int  # bytes after the index
    nbytes: int


def flat_tensor_index(tensors: Sequence[PlacedTensor], data_size: int, alignment: int) -> bytes:
    """Returns the part of the file before the data, padded to `alignment` bytes."""
    flatbuffer = _flatbuffer(tensors)
    base = -(-(_HEADER_SIZE + len(flatbuffer)) // alignment) * alignment
    header = _HEADER.pack(_HEADER_MAGIC, _HEADER.size, _HEADER_SIZE, len(flatbuffer), base, data_size)
    root = int.from_bytes(flatbuffer[:4], "little") + _HEADER_SIZE
    index = root.to_bytes(4, "little") + flatbuffer[4:8] + header.ljust(_HEADER_SIZE, b"\0") + flatbuffer[8:]
    return index.ljust(base, b"\0")


def _flatbuffer(tensors: Sequence[PlacedTensor]) -> bytes:
    builder = Builder(1024)
    segments = []
    for tensor in tensors:
        builder.StartObject(2)
        builder.PrependUint64Slot(1, tensor.nbytes, 0)
        builder.PrependUint64Slot(0, tensor.offset, 0)
        segments.append(builder.EndObject())
    all_segments = _vector(builder, 4, segments, builder.PrependUOffsetTRelative)
    named = []
    for number, tensor in enumerate(tensors):
        key = builder.CreateString(tensor.name)
        sizes = _vector(builder, 4, tensor.shape, builder.PrependInt32)
        order = _vector(builder, 1, range(len(tensor.shape)), builder.PrependUint8)
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(2, order, 0)
        builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
        builder.PrependInt8Slot(0, _SCALAR_TYPES[tensor.dtype], 0)
        layout = builder.EndObject()
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(2, layout, 0)
        builder.PrependUint32Slot(1, number, 0)
        builder.PrependUOffsetTRelativeSlot(0, key, 0)
        named.append(builder.EndObject())
    all_named = _vector(builder, 4, named, builder.PrependUOffsetTRelative)
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(2, all_named, 0)
    builder.PrependUOffsetTRelativeSlot(1, all_segments, 0)
    builder.PrependUint32Slot(0, _VERSION, 0)
    builder.Finish(builder.EndObject(), file_identifier=_IDENTIFIER)
    return bytes(builder.Output())


def _vector(builder: Builder, size: int, items: Sequence[int], prepend: Callable[[int], None]) -> int:
    builder.StartVector(size, len(items), size)
    for item in reversed(items):
        prepend(item)
    return int(builder.EndVector())
