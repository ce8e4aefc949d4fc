"""Writes `weights.ptd`: ExecuTorch named data, one page-aligned segment a tensor, so each can be mapped alone.

ExecuTorch's `FlatTensorSerializer` wants all data at once. The index in front depends on the sizes alone, so it is
written from them, and one tensor after the other follows.
"""

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mobile_ft.bundle.description import Weights
from mobile_ft.export.flat_tensor_index import PlacedTensor, flat_tensor_index

PAGE = 4096


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
    placed: list[PlacedTensor] = []
    end = 0
    for tensor in tensors:
        start = -(-end // PAGE) * PAGE
        placed.append(PlacedTensor(tensor.name, tensor.dtype, tensor.shape, start, tensor.nbytes))
        end = start + tensor.nbytes
    index = flat_tensor_index(placed, end, PAGE)
    base = len(index)
    sums = {}
    with path.open("wb") as file:
        file.write(index)
        if hollow:
            file.truncate(base + end)
            sums = dict.fromkeys((tensor.name for tensor in tensors), "0" * 64)
            tensors = []
        for done, (tensor, place) in enumerate(zip(tensors, placed, strict=not hollow), 1):
            data = np.ascontiguousarray(tensor.load())
            if data.dtype != tensor.dtype or data.shape != tensor.shape:
                raise ValueError(f"{tensor.name}: {data.dtype} {data.shape} instead of {tensor.dtype} {tensor.shape}")
            file.write(bytes(base + place.offset - file.tell()))
            file.write(data.data)
            sums[tensor.name] = hashlib.sha256(data.data).hexdigest()
            on_tensor(done, len(tensors))
    return Weights(base + end, base, hashlib.sha256(index).hexdigest(), sums)
