"""Writes `weights.ptd`: ExecuTorch named data, one page-aligned segment a tensor, so each can be mapped alone.

ExecuTorch's `FlatTensorSerializer` wants all data at once. The index in front depends on the sizes alone, so it is
written here from them, with ExecuTorch's own parts, and one tensor after the other follows.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from executorch.exir._serialize._program import _insert_flatbuffer_header
from executorch.exir._serialize.padding import aligned_size, pad_to
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.flat_tensor_schema import DataSegment, FlatTensor, NamedData
from executorch.extension.flat_tensor.serialize.serialize import (
    _FLAT_TENSOR_VERSION,
    _FLATBUFFER_ALIGNMENT,
    FlatTensorHeader,
    _serialize_to_flatbuffer,
)

from mobile_ft.bundle.description import Weights

PAGE = 4096
_SCALAR_TYPES = {"float32": ScalarType.FLOAT, "uint8": ScalarType.BYTE}


@dataclass(frozen=True)
class LazyTensor:
    """A tensor of the file; `load` makes its data when its turn has come."""

    name: str
    dtype: str  # float32 or uint8
    shape: tuple[int, ...]
    load: Callable[[], npt.NDArray]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_weights(
    path: Path,
    tensors: Iterable[LazyTensor],
    hollow: bool = False,
    on_tensor: Callable[[int, int], None] = lambda done, total: None,
) -> Weights:
    """Writes the tensors in the given order, with no more than one of them in memory; their checksums come with it.

    `hollow` leaves holes in their place, which take no room on disk, and checksums that no data has. `on_tensor` is
    called with how many of them are written.
    """
    tensors = list(tensors)
    segments: list[DataSegment] = []
    end = 0
    for tensor in tensors:
        segments.append(DataSegment(offset=aligned_size(end, PAGE), size=tensor.nbytes))
        end = segments[-1].offset + tensor.nbytes
    index = _index(tensors, segments, end)
    base = len(index)
    sums = {}
    with path.open("wb") as file:
        file.write(index)
        if hollow:
            file.truncate(base + end)
            sums = dict.fromkeys((tensor.name for tensor in tensors), "0" * 64)
            tensors = []
        for done, (tensor, segment) in enumerate(zip(tensors, segments, strict=not hollow), 1):
            data = np.ascontiguousarray(tensor.load())
            if data.dtype != tensor.dtype or data.shape != tensor.shape:
                raise ValueError(f"{tensor.name}: {data.dtype} {data.shape} instead of {tensor.dtype} {tensor.shape}")
            file.write(bytes(base + segment.offset - file.tell()))
            file.write(data.data)
            sums[tensor.name] = hashlib.sha256(data.data).hexdigest()
            on_tensor(done, len(tensors))
    return Weights(base + end, base, hashlib.sha256(index).hexdigest(), sums)


def _index(tensors: list[LazyTensor], segments: list[DataSegment], data_size: int) -> bytes:
    """All that comes before the first segment, in whole pages."""
    named = [
        NamedData(
            key=tensor.name,
            segment_index=i,
            tensor_layout=TensorLayout(_SCALAR_TYPES[tensor.dtype], list(tensor.shape), list(range(len(tensor.shape)))),
        )
        for i, tensor in enumerate(tensors)
    ]
    flatbuffer = bytes(_serialize_to_flatbuffer(FlatTensor(_FLAT_TENSOR_VERSION, segments, named)))
    header_size = aligned_size(FlatTensorHeader.EXPECTED_LENGTH, _FLATBUFFER_ALIGNMENT)
    base = aligned_size(header_size + len(flatbuffer), PAGE)
    header = FlatTensorHeader(
        flatbuffer_offset=header_size,
        flatbuffer_size=len(flatbuffer),
        segment_base_offset=base,
        segment_data_size=data_size,
    )
    whole = _insert_flatbuffer_header(flatbuffer, r"FT[0-9a-zA-Z][0-9a-zA-Z]", pad_to(header.to_bytes(), header_size))
    return pad_to(whole, base)
