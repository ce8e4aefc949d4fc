"""The streamed `weights.ptd` against ExecuTorch's own serializer, and what random weights look like."""

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import pytest
from executorch.exir._serialize._cord import Cord
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.scalar_type import ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorConfig, FlatTensorSerializer

from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.export.weights_file import PAGE, LazyTensor, write_weights
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import unpack

TENSORS: dict[str, np.ndarray] = {
    "inv_freq": np.arange(8, dtype=np.float32),
    "table": np.arange(5 * PAGE, dtype=np.uint8).reshape(5, 2, -1),
    "norm": np.ones(1024, np.float32),  # exactly a page
    **{"n" * i: np.full((1,) * (i % 5) + (i,), i, np.uint8 if i % 3 else np.float32) for i in range(1, 20)},
}

SCALAR_TYPES = {"float32": ScalarType.FLOAT, "uint8": ScalarType.BYTE}


def lazy(name: str, data: np.ndarray) -> LazyTensor:
    return LazyTensor(name, data.dtype.name, data.shape, lambda: data)


def test_the_file_is_what_executorch_writes(tmp_path: Path) -> None:
    weights = write_weights(tmp_path / "weights.ptd", [lazy(name, data) for name, data in TENSORS.items()])
    entries = {
        name: DataEntry(i, PAGE, TensorLayout(SCALAR_TYPES[x.dtype.name], list(x.shape), list(range(x.ndim))))
        for i, (name, x) in enumerate(TENSORS.items())
    }
    payload = DataPayload(buffers=[x.tobytes() for x in TENSORS.values()], named_data=entries)
    serializer = FlatTensorSerializer(FlatTensorConfig(segment_alignment=PAGE))
    content = (tmp_path / "weights.ptd").read_bytes()
    assert content == bytes(serializer.serialize(payload))
    assert serializer.deserialize(Cord(content)).buffers == payload.buffers

    def sha256(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    index = content[: weights.index_size]
    assert weights.size == len(content) and weights.index_sha256 == sha256(index)
    places = tensor_places(index)
    assert list(places) == list(weights.sha256) == list(TENSORS)
    for name, (offset, size) in places.items():
        data = content[offset : offset + size]
        assert data == TENSORS[name].tobytes() and weights.sha256[name] == sha256(data), name


def test_an_index_that_is_none(tmp_path: Path) -> None:
    """Whatever is cut off or changed, it is refused or read as something else, and nothing beyond it is touched."""
    weights = write_weights(tmp_path / "weights.ptd", [lazy(name, data) for name, data in TENSORS.items()])
    index = (tmp_path / "weights.ptd").read_bytes()[: weights.index_size]
    used = len(index.rstrip(b"\0"))
    for end in range(0, used, 3):
        with pytest.raises(ValueError, match="FlatTensor"):
            tensor_places(index[:end])
    rng = np.random.default_rng(0)
    for _ in range(2000):
        broken = bytearray(index[:used])
        for place in rng.integers(0, used, 3):
            broken[place] = rng.integers(0, 256)
        with contextlib.suppress(ValueError):
            tensor_places(bytes(broken))


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    """Each is made only after the one before it is written."""
    path, sizes = tmp_path / "weights.ptd", []

    def load() -> np.ndarray:
        sizes.append(path.stat().st_size)
        return np.ones(1 << 20, np.uint8)

    write_weights(path, [LazyTensor(str(i), "uint8", (1 << 20,), load) for i in range(3)])
    assert sizes[1] >= 1 << 20 and sizes[2] == sizes[1] + (1 << 20)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="norm: float32"):
        write_weights(tmp_path / "weights.ptd", [LazyTensor("norm", "float32", (7,), lambda: TENSORS["norm"])])


def test_random_weights() -> None:
    config = ModelConfig("random", 256, 512, 1, 4, 2, 64, 1000, 1e-5, 1e4, 512, True)
    for name, rows in (("model.embed_tokens.weight", 1000), ("model.layers.0.mlp.up_proj.weight", 512)):
        weight = RandomModel(config, 0).packed(name, 256, rows)
        dense = unpack(weight.data, weight.format, rows)
        assert abs(dense.mean()) < 3e-3  # 4-bit codes reach from -8 to 7
        assert dense.std() == pytest.approx(0.02, rel=0.02)
        assert np.array_equal(weight.data, RandomModel(config, 0).packed(name, 256, rows).data)
        assert not np.array_equal(weight.data, RandomModel(config, 1).packed(name, 256, rows).data)
        assert not unpack(weight.data, weight.format, -(-rows // 16) * 16)[rows:].any()
