"""Writes `weights.ptd`: ExecuTorch named data, with one page-aligned segment per tensor, so that each can be mapped.

ExecuTorch's `FlatTensorSerializer` needs all data at once. But the index at the beginning depends only on the sizes, so
it is written first, followed by one tensor after the other.
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
    """A tensor of the file. `load` creates its data when it is written."""

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
    """Writes the tensors in the given order, with only one of them in memory. Returns their checksums.

    `hollow` writes holes instead, which take no space on disk, and invalid checksums. `on_tensor` is called with the
    number of tensors written so far.
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
