"""Tensors on their way between a device and the server: a safetensors file, its numbers in as many bits as asked.

float32 and float16 are tensors of that type. int8 is rounded by blocks of BLOCK numbers in a row (the last one may be
shorter), each with its own scale: tensor NAME is int8 in its own shape, NAME.scale float32 [blocks], and a number is
code x scale. What rounding left out is the sender's to add to what it sends next (error feedback, arXiv 1901.09847).
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
_HEADER_BYTES = 400  # of a tensor and its scale, at most, in the header of a file


def wire_of(name: str) -> Wire:
    """Raises UserError where there is no such format."""
    if name not in get_args(Wire):
        raise UserError(f"wire {name!r}: known are {', '.join(get_args(Wire))}")
    return cast(Wire, name)


def encode(tensors: Tensors, wire: Wire) -> bytes:
    """A file of float32 `tensors`. Raises UserError where a number is not finite, or none of float16's."""
    encoded: dict[str, npt.NDArray] = {}
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise UserError(f"tensor {name} has numbers that are not finite")
        if wire == "int8":
            encoded[name], encoded[name + _SCALE] = _rounded(tensor)
        else:
            with np.errstate(over="ignore"):
                encoded[name] = np.ascontiguousarray(tensor, wire)
            if not np.isfinite(encoded[name]).all():
                raise UserError(f"tensor {name} has numbers beyond float16's; send float32")
    return save(encoded)


def decode(data: bytes, shapes: Shapes) -> Tensors:
    """The float32 tensors of a file that somebody else wrote, in any of the formats.

    Raises UserError where it is not one, or has other tensors than those of `shapes`, or numbers that are not finite.
    """
    most = 4096 + sum(4 * math.prod(shape) + _HEADER_BYTES + len(name) for name, shape in shapes.items())
    if len(data) > most:
        raise UserError(f"{len(data)} bytes; what was asked for takes at most {most}")
    try:
        found = load(data)
    except (SafetensorError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise UserError(f"not a readable safetensors file ({error})") from error
    tensors = {name: _decoded(found, name, shape) for name, shape in shapes.items()}
    if found:
        raise UserError(f"tensor {next(iter(found))} was not asked for")
    return tensors


def _decoded(found: dict[str, npt.NDArray], name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Takes what belongs to tensor `name` out of `found`."""
    if name not in found:
        raise UserError(f"tensor {name} is missing")
    tensor = found.pop(name)
    if tensor.shape != shape:
        raise UserError(f"tensor {name} is {tensor.shape}; asked for was {shape}")
    if tensor.dtype == np.int8:
        scale, blocks = found.pop(name + _SCALE, None), _blocks(shape)
        if scale is None or scale.dtype != np.float32 or scale.shape != (blocks,):
            raise UserError(f"tensor {name}{_SCALE} has to be float32 [{blocks}]")
        codes = tensor.reshape(-1).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            tensor = (codes * np.repeat(scale, BLOCK)[: codes.size]).reshape(shape)
    elif tensor.dtype not in (np.float32, np.float16):
        raise UserError(f"tensor {name} is {tensor.dtype}; known are {', '.join(get_args(Wire))}")
    if not np.isfinite(tensor).all():
        raise UserError(f"tensor {name} has numbers that are not finite")
    return tensor.astype(np.float32)


def _blocks(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // BLOCK)


def _rounded(tensor: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Codes in -127..127, and a scale a block."""
    flat = np.zeros(_blocks(tensor.shape) * BLOCK, np.float32)
    flat[: tensor.size] = tensor.reshape(-1)
    rows = flat.reshape(-1, BLOCK)
    scale = np.abs(rows).max(axis=1) / np.float32(127)
    # Of a block of nothing but zeros, or of numbers too small to have a scale.
    divisor = np.where(scale > 0, scale, np.float32(1))
    codes = np.clip(np.rint(rows / divisor[:, None]), -127, 127).astype(np.int8)
    return codes.reshape(-1)[: tensor.size].reshape(tensor.shape), scale
