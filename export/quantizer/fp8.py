"""Reads weights in 8-bit floats with block scales, as DeepSeek-V3 (arXiv 2412.19437), Qwen and Mistral publish them.

W = float8_e4m3fn(weight) * weight_scale_inv, which has one number for each block of `weight_block_size`, or one for the
whole weight. The scales of activations are left out: the runtime rounds activations in its own way.
"""

from collections.abc import Callable

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import Settings, setting
from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers
from mobile_ft.model.formats import F32

DTYPE = "F8_E4M3"
# Reads rows (start, stop) of the weight of a name; None if it is not in 8-bit floats.
FloatReader = Callable[[Tensors, str], Callable[[int, int], F32] | None]


def fp8_reader(source: str, settings: Settings) -> FloatReader:
    """Returns a reader of weights. Raises UserError, with the file's name, for a setting that is not supported."""
    setting(source, settings, "fmt", ("e4m3", None))
    setting(source, settings, "scale_fmt", ("float", None))
    block = settings.get("weight_block_size")
    if block is not None and not (
        isinstance(block, list) and [type(n) for n in block] == [int, int] and min(block) > 0
    ):
        raise UserError(f"{source}: weight_block_size is {block!r}; it must be null or two positive integers")
    return lambda tensors, name: _rows(tensors, name, block)


def _rows(tensors: Tensors, name: str, block: list[int] | None) -> Callable[[int, int], F32] | None:
    if name not in tensors.names:
        return None
    rows, cols = tensors.matrix_shape(name)
    key = f"{name}_scale_inv"
    if key not in tensors.names:
        return None
    tensor = tensors.get(name, (DTYPE,), [rows, cols])
    if block is None:
        shape = tensors.shape(key)
        values = numbers(tensors.get(key, FLOATS, shape if shape == [1] else [])[...]).reshape(1, 1)
        height, width = rows, cols
    else:
        height, width = min(block[0], rows), min(block[1], cols)
        values = numbers(tensors.get(key, FLOATS, [-(-rows // height), -(-cols // width)])[:])
    if not np.isfinite(values).all():
        raise UserError(f"{tensors.where(key)}: tensor {key} has values that are not finite")

    def read(start: int, stop: int) -> F32:
        scales = values[np.arange(start, stop) // height].repeat(width, axis=1)[:, :cols]
        out: F32 = numbers(tensor[start:stop]) * scales
        return out

    return read
