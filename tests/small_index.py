"""The index of a weights.ptd, of any tensors."""

import struct
from collections.abc import Sequence

import flatbuffers


def index(names: Sequence[str], segments: Sequence[tuple[int, int]]) -> bytes:
    """An index of these tensors, tensor i in segment i; equal names share their bytes."""
    builder = flatbuffers.Builder()

    def vector(tables: list[int]) -> int:
        builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            builder.PrependUOffsetTRelative(table)
        return int(builder.EndVector())

    def segment(offset: int, size: int) -> int:
        builder.StartObject(2)
        builder.PrependUint64Slot(0, offset, 0)
        builder.PrependUint64Slot(1, size, 0)
        return int(builder.EndObject())

    def named(text: int, number: int) -> int:
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, text, 0)
        builder.PrependUint32Slot(1, number, 0)
        return int(builder.EndObject())

    texts = {name: builder.CreateString(name) for name in dict.fromkeys(names)}
    named_data = vector([named(texts[name], i) for i, name in enumerate(names)])
    places = vector([segment(*place) for place in segments])
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(1, places, 0)
    builder.PrependUOffsetTRelativeSlot(2, named_data, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"FT01")
    flat = bytes(builder.Output())
    header = struct.pack("<4sIQQQQ", b"FH01", 40, 48, len(flat), 4096, 0)
    (root,) = struct.unpack_from("<I", flat)
    return struct.pack("<I", root + len(header)) + flat[4:8] + header + flat[8:]
