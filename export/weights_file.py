"""Writes `weights.ptd`: ExecuTorch named data, one page-aligned segment a tensor, so each can be mapped alone."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorConfig, FlatTensorSerializer

PAGE = 4096
_SCALAR_TYPES = {"float32": ScalarType.FLOAT, "uint8": ScalarType.BYTE}


def write_weights(path: Path, tensors: dict[str, npt.NDArray]) -> None:
    """`tensors` are float32 or uint8; the file holds them in the given order."""
    buffers: list[bytes] = []
    entries: dict[str, DataEntry] = {}
    for key, tensor in tensors.items():
        layout = TensorLayout(_SCALAR_TYPES[tensor.dtype.name], list(tensor.shape), list(range(tensor.ndim)))
        entries[key] = DataEntry(buffer_index=len(buffers), alignment=PAGE, tensor_layout=layout)
        buffers.append(np.ascontiguousarray(tensor).tobytes())
    serializer = FlatTensorSerializer(FlatTensorConfig(segment_alignment=PAGE))
    with path.open("wb") as file:
        serializer.serialize(DataPayload(buffers=buffers, named_data=entries)).write_to_file(file)
