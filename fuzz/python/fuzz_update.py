"""A change of an adapter, as devices send it and the server reads it: parts of a safetensors file."""

from pathlib import Path

import numpy as np

from fuzz.python.safetensors_parts import put_together, take_apart
from mobile_ft.federated.wire import decode, encode

_SHAPES = {"q.lora_A.weight": (2, 70), "q.lora_B.weight": (40, 2)}


def seeds() -> list[bytes]:
    draw = np.random.default_rng(0)
    tensors = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in _SHAPES.items()}
    return [take_apart(encode(tensors, wire)) for wire in ("float32", "float16", "int8")]


def run(data: bytes, folder: Path) -> None:
    found = decode(put_together(data), _SHAPES)
    assert {name: x.shape for name, x in found.items()} == _SHAPES
    assert all(x.dtype == np.float32 and np.isfinite(x).all() for x in found.values())
