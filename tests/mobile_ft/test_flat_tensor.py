"""The index of weights.ptd, out of a file that may hold anything."""

import struct
from collections.abc import Sequence

import flatbuffers
import pytest

from mobile_ft.flat_tensor import tensor_places


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


def test_places() -> None:
    assert tensor_places(index(["a", "b"], [(0, 3), (4096, 5)])) == {"a": (4096, 3), "b": (8192, 5)}
    assert tensor_places(index([], [])) == {}


def test_every_truncation_and_changed_byte_is_an_error_or_an_index() -> None:
    whole = index(["a", "b"], [(0, 3), (4096, 5)])
    for place in range(len(whole)):
        for broken in (whole[:place], *(whole[:place] + bytes([b]) + whole[place + 1 :] for b in (0, 1, 127, 255))):
            try:
                assert isinstance(tensor_places(broken), dict)
            except ValueError as error:
                assert str(error) in ("not the index of a FlatTensor file", "no FlatTensor file")


def test_names_that_share_their_bytes() -> None:
    """Some hundred kilobytes that would else be gigabytes of names."""
    with pytest.raises(ValueError, match="not the index of a FlatTensor file"):
        tensor_places(index(["x" * 200_000] * 10_000, [(0, 1)] * 10_000))
