"""Reads the index of a `weights.ptd`, a file in ExecuTorch's FlatTensor format, without ExecuTorch.

The index is a flatbuffer after a header of fixed fields (executorch/extension/flat_tensor/serialize/flat_tensor.fbs).
"""

import struct
from collections.abc import Iterator

# Fields of the tables, by their number in the schema.
_SEGMENTS, _NAMED_DATA = 1, 2
_OFFSET, _SIZE = 0, 1
_KEY, _SEGMENT_INDEX = 0, 1
_HEADER = struct.Struct(
    "<4s4s4sIQQQQ"
)  # root, FT01, FH01, length, flatbuffer's offset and size, data's offset and size


def tensor_places(index: bytes) -> dict[str, tuple[int, int]]:
    """Returns {name: (offset in the file, size in bytes)}. `index` is the part of the file before the first tensor.

    Raises ValueError if it is not such an index.
    """
    try:
        root, magic, header_magic, _, _, _, base, _ = _HEADER.unpack_from(index)
        if not magic.startswith(b"FT") or header_magic != b"FH01":
            raise ValueError("not a FlatTensor file")
        table = int.from_bytes(root, "little")
        segments = [
            (_number(index, segment, _OFFSET, "<Q"), _number(index, segment, _SIZE, "<Q"))
            for segment in _tables(index, table, _SEGMENTS)
        ]
        places: dict[str, tuple[int, int]] = {}
        length = 0
        for named in _tables(index, table, _NAMED_DATA):
            offset, size = segments[_number(index, named, _SEGMENT_INDEX, "<I")]
            name = _text(index, named, _KEY)
            places[name] = (base + offset, size)
            length += len(name)
            if length > len(index):  # names that share their bytes could have any total size
                raise IndexError
        return places
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ValueError("not a valid index of a FlatTensor file") from None


def _read(index: bytes, offset: int, form: str) -> int:
    if offset < 0:  # struct counts negative offsets from the end
        raise IndexError
    return struct.unpack_from(form, index, offset)[0]


def _field(index: bytes, table: int, number: int) -> int | None:
    """Returns the offset of a table's field, or None if it is left out, which means zero or empty."""
    vtable = table - _read(index, table, "<i")
    slot = 4 + 2 * number
    offset = _read(index, vtable + slot, "<H") if slot < _read(index, vtable, "<H") else 0
    return table + offset if offset else None


def _number(index: bytes, table: int, number: int, form: str) -> int:
    place = _field(index, table, number)
    return 0 if place is None else _read(index, place, form)


def _tables(index: bytes, table: int, number: int) -> Iterator[int]:
    """Yields the offsets of the tables in a field that is a vector of tables."""
    place = _field(index, table, number)
    if place is None:
        return
    vector = place + _read(index, place, "<I")
    for i in range(_read(index, vector, "<I")):
        element = vector + 4 + 4 * i
        yield element + _read(index, element, "<I")


def _text(index: bytes, table: int, number: int) -> str:
    place = _field(index, table, number)
    if place is None:
        return ""
    start = place + _read(index, place, "<I")
    size = _read(index, start, "<I")
    if start + 4 + size > len(index):
        raise IndexError
    return index[start + 4 : start + 4 + size].decode()
