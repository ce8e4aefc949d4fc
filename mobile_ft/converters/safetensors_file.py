"""Writes safetensors files tensor by tensor; the library's own writer wants all of them in memory.

A file is the length of its header, uint64; the header, JSON of each tensor's dtype, shape and place; and the tensors.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

_DTYPES = {"float32": "F32", "float16": "F16"}
_ALIGNMENT = 8  # of the first tensor


def write_safetensors(
    path: Path, shapes: dict[str, tuple[int, ...]], dtype: str, load: Callable[[str], npt.NDArray]
) -> None:
    """Writes a tensor of `dtype`, float32 or float16, for each of `shapes`; `load` makes it when its turn has come."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        entries[name] = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for name, shape in shapes.items():
            data = np.ascontiguousarray(load(name))
            if data.dtype != dtype or data.shape != shape:
                raise ValueError(f"{name}: {data.dtype} {data.shape} instead of {dtype} {shape}")
            file.write(data.data)
