"""Writes safetensors files tensor by tensor, because the library's own writer needs all tensors in memory.

A file has the length of its header (uint64), the header (JSON with each tensor's dtype, shape and offsets) and the
tensors.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

_DTYPES = {"float32": "F32", "float16": "F16", "uint8": "U8"}
_ALIGNMENT = 8  # alignment of the first tensor


@dataclass(frozen=True)
class TensorInfo:
    dtype: str  # float32, float16 or uint8
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def write_safetensors(path: Path, tensors: dict[str, TensorInfo], arrays: Iterable[npt.NDArray]) -> None:
    """Writes `tensors` in order. `arrays` yields their values; each is requested when it is written."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, info in tensors.items():
        start, end = end, end + info.size
        entries[name] = {"dtype": _DTYPES[info.dtype], "shape": info.shape, "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for (name, info), array in zip(tensors.items(), arrays, strict=True):
            data = np.ascontiguousarray(array)
            if (str(data.dtype), data.shape) != (info.dtype, info.shape):
                raise ValueError(f"{name}: {data.dtype} {data.shape} instead of {info}")
            file.write(data.data)
