"""Reads bitsandbytes' 4-bit weights (NF4, FP4; QLoRA, arXiv 2305.14314) in the format of `save_pretrained`.

Codes are in row order, two per byte, the high nibble first. Each block of codes has an absmax: w = absmax *
codebook[code]. Double quantization stores absmax in 8 bits, in blocks with a scale each, and a mean.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import Codes, QuantizedWeight, Reader, Settings, format_name, setting
from mobile_ft.export.quantizer.tensors import Tensors, numbers
from mobile_ft.files.json_text import parse_json
from mobile_ft.model.formats import CODEBOOKS, F32, FORMATS

_KINDS = ("nf4", "fp4")
_MOST_BYTES = 1 << 16  # limit of a weight's JSON
_MOST = 1 << 32  # limit of a count in it
_MOST_F32 = float(np.finfo(np.float32).max)

Absmax = Callable[[int, int], F32]  # (start, stop) -> absmax of these blocks


def bitsandbytes_reader(source: str, settings: Settings) -> Reader:
    """Returns the reader for these settings. Raises UserError if the checkpoint is not in 4 bits."""
    setting(source, settings, "load_in_4bit", (True,))
    return _open


def _open(tensors: Tensors, name: str) -> QuantizedWeight | None:
    kind = next((kind for kind in _KINDS if f"{name}.quant_state.bitsandbytes__{kind}" in tensors.names), None)
    if kind is None:
        return None
    state = _state(tensors, name, kind)
    (rows, cols), block = state["shape"], state["blocksize"]
    codes = tensors.get(name, ("U8",), [rows * cols // 2, 1])
    if not np.array_equal(numbers(tensors.get(f"{name}.quant_map", ("F32",), [16])[:]), CODEBOOKS[kind]):
        raise UserError(f"{tensors.where(name)}: tensor {name}.quant_map is not the codebook of {kind}")
    fmt = format_name(f"{tensors.where(name)}: tensor {name}", kind, cols, block)
    absmax = _open_absmax(tensors, name, state, -(-rows * cols // block))
    return QuantizedWeight(fmt, rows, cols, partial(_read, codes, absmax, fmt, cols, block))


def _read(codes: Any, absmax: Absmax, fmt: str, cols: int, block: int, start: int, stop: int) -> Codes:
    pairs = codes[start * cols // 2 : stop * cols // 2].cpu().numpy()
    first, last = start * cols // block, -(-stop * cols // block)
    # The format's groups divide both rows and blocks.
    of_group = np.arange(start * cols, stop * cols, FORMATS[fmt].group) // block
    scales = absmax(first, last)[of_group - first]
    return np.concatenate([pairs >> 4, pairs & 15], axis=1).reshape(-1, cols), [scales.reshape(stop - start, -1)]


def _open_absmax(tensors: Tensors, name: str, state: Settings, blocks: int) -> Absmax:
    if "nested_blocksize" not in state:
        absmax = tensors.get(f"{name}.absmax", ("F32",), [blocks])
        return lambda start, stop: numbers(absmax[start:stop])
    block, offset = state["nested_blocksize"], np.float32(state["nested_offset"])
    codes = tensors.get(f"{name}.absmax", ("U8",), [blocks])
    scales = tensors.get(f"{name}.nested_absmax", ("F32",), [-(-blocks // block)])
    values = numbers(tensors.get(f"{name}.nested_quant_map", ("F32",), [256])[:])

    def read(start: int, stop: int) -> F32:
        first, last = start // block, -(-stop // block)
        scale = numbers(scales[first:last])[np.arange(start, stop) // block - first]
        return values[codes[start:stop].cpu().numpy()] * scale + offset

    return read


def _state(tensors: Tensors, name: str, kind: str) -> Settings:
    """Returns the checked JSON of a weight: its shape and block size, and with double quantization those of absmax."""
    name = f"{name}.quant_state.bitsandbytes__{kind}"
    where, size = f"{tensors.where(name)}: tensor {name}", math.prod(tensors.shape(name))
    if size > _MOST_BYTES:
        raise UserError(f"{where} has {size} bytes; it must be a JSON text of at most {_MOST_BYTES} bytes")
    try:
        state = parse_json(bytes(tensors.get(name, ("U8",), [size])[:].cpu().numpy()).decode())
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({error})") from None
    if not isinstance(state, dict):
        raise UserError(f"{where} must be a JSON object, not a {type(state).__name__}")
    shape = state.get("shape")
    if not isinstance(shape, list) or len(shape) != 2:
        raise UserError(f"{where}: shape is {shape!r}; it must be [rows, columns]")
    counts = [("shape", shape[0]), ("shape", shape[1]), ("blocksize", state.get("blocksize"))]
    if "nested_blocksize" in state:
        counts.append(("nested_blocksize", state["nested_blocksize"]))
        offset = state.get("nested_offset")
        if not isinstance(offset, float) or not abs(offset) <= _MOST_F32:
            raise UserError(f"{where}: nested_offset is {offset!r}; it must be a float32 number")
    for key, value in counts:
        if type(value) is not int or not 0 < value <= _MOST:
            raise UserError(f"{where}: {key} has {value!r}; it must be from 1 to {_MOST}")
    return state
