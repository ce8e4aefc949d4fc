"""Encodes tensors for transfer between a device and the server, as a safetensors file in float32, float16 or int8.

float32 and float16 are stored as tensors of that type. int8 is rounded in blocks of BLOCK consecutive values (the last
block may be shorter), each with its own scale: tensor NAME is int8 in its own shape, NAME.scale is float32 [blocks],
and a value is code x scale. The sender adds the rounding error to its next update (error feedback, arXiv 1901.09847).
"""

import math
from collections.abc import Mapping
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mobile_ft.api.adapter import Tensors
from mobile_ft.errors import UserError

Wire = Literal["float32", "float16", "int8"]
Shapes = Mapping[str, tuple[int, ...]]

BLOCK = 128
_SCALE = ".scale"
_HEADER_BYTES = 400  # maximum size of the header entries of a tensor and its scale


def wire_of(name: str) -> Wire:
    """Checks the name of a format. Raises UserError if it is unknown."""
    if name not in get_args(Wire):
        raise UserError(f"wire {name!r}: must be one of {', '.join(get_args(Wire))}")
    return cast(Wire, name)


def encode(tensors: Tensors, wire: Wire) -> bytes:
    """Encodes float32 `tensors` as a file. Raises UserError if a value is not finite or too large for float16."""
    encoded: dict[str, npt.NDArray] = {}
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise UserError(f"tensor {name} has values that are not finite")
        if wire == "int8":
            encoded[name], encoded[name + _SCALE] = _rounded(tensor)
        else:
            with np.errstate(over="ignore"):
                encoded[name] = np.ascontiguousarray(tensor, wire)
            if not np.isfinite(encoded[name]).all():
                raise UserError(f"tensor {name} has values that are too large for float16; set wire to float32")
    return save(encoded)


def decode(data: bytes, shapes: Shapes) -> Tensors:
    """Decodes an untrusted file in any of the formats to float32 tensors.

    Raises UserError if it is malformed, has other tensors than `shapes`, or has values that are not finite.
    """
    most = 4096 + sum(4 * math.prod(shape) + _HEADER_BYTES + len(name) for name, shape in shapes.items())
    if len(data) > most:
        raise UserError(f"has {len(data)} bytes; at most {most} are expected")
    try:
        found = load(data)
    except (SafetensorError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise UserError(f"not a readable safetensors file ({error})") from error
    tensors = {name: _decoded(found, name, shape) for name, shape in shapes.items()}
    if found:
        raise UserError(f"tensor {next(iter(found))} is not expected")
    return tensors


def _decoded(found: dict[str, npt.NDArray], name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Removes the entries of tensor `name` from `found` and decodes them."""
    if name not in found:
        raise UserError(f"tensor {name} is missing")
    tensor = found.pop(name)
    if tensor.shape != shape:
        raise UserError(f"tensor {name} has shape {tensor.shape}; expected: {shape}")
    if tensor.dtype == np.int8:
        scale, blocks = found.pop(name + _SCALE, None), _blocks(shape)
        if scale is None or scale.dtype != np.float32 or scale.shape != (blocks,):
            raise UserError(f"tensor {name}{_SCALE} must be float32 [{blocks}]")
        codes = tensor.reshape(-1).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            tensor = (codes * np.repeat(scale, BLOCK)[: codes.size]).reshape(shape)
    elif tensor.dtype not in (np.float32, np.float16):
        raise UserError(f"tensor {name} is {tensor.dtype}; supported: {', '.join(get_args(Wire))}")
    if not np.isfinite(tensor).all():
        raise UserError(f"tensor {name} has values that are not finite")
    return tensor.astype(np.float32)


def _blocks(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // BLOCK)


def _rounded(tensor: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Returns codes in -127..127 and one scale per block."""
    flat = np.zeros(_blocks(tensor.shape) * BLOCK, np.float32)
    flat[: tensor.size] = tensor.reshape(-1)
    rows = flat.reshape(-1, BLOCK)
    scale = np.abs(rows).max(axis=1) / np.float32(127)
    # For a block of zeros, or of values that are too small to have a scale.
    divisor = np.where(scale > 0, scale, np.float32(1))
    codes = np.clip(np.rint(rows / divisor[:, None]), -127, 127).astype(np.int8)
    return codes.reshape(-1)[: tensor.size].reshape(tensor.shape), scale
