"""Reads MLX's quantized weights in mlx-lm's format: w = scale * code + bias in groups of columns, also of embeddings.

Codes are in 32-bit words, lowest first. "quantization" in config.json has the settings, and under the names of modules
their own settings.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import Codes, QuantizedWeight, Reader, Settings, setting, unpack_words
from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers, row_pieces, words

_KINDS = {4: "q4_1", 8: "q8_1"}
_SUFFIXES = {32: "", 64: "_g64", 128: "_g128"}


def mlx_reader(source: str, settings: Settings) -> Reader:
    """Returns the reader for these settings. Raises UserError, now or for a module, if a format is not supported."""
    _format(source, settings)
    return partial(_open, source, settings)


def _format(source: str, settings: Settings) -> tuple[str, int, int]:
    """Returns the name of the format, its bits and its group."""
    setting(source, settings, "mode", ("affine",), "affine")
    bits = setting(source, settings, "bits", tuple(_KINDS))
    group = setting(source, settings, "group_size", tuple(_SUFFIXES))
    return _KINDS[bits] + _SUFFIXES[group], bits, group


def _open(source: str, settings: Settings, tensors: Tensors, name: str) -> QuantizedWeight | None:
    module = name.removesuffix(".weight")
    if f"{module}.scales" not in tensors.names:
        return None
    own = settings.get(module)
    fmt, bits, group = _format(source, own if isinstance(own, dict) else settings)
    *rows, wide = tensors.shape(name)
    if len(rows) not in (1, 2) or not math.prod(rows):  # two: of all experts
        raise UserError(
            f"{tensors.where(name)}: tensor {name} has shape {[*rows, wide]}; it must have 2 or 3 dimensions"
        )
    cols = wide * 32 // bits
    codes = tensors.get(name, ("U32",), [*rows, wide])
    parts = [tensors.get(f"{module}.{part}", FLOATS, [*rows, cols // group]) for part in ("scales", "biases")]
    return QuantizedWeight(fmt, math.prod(rows), cols, partial(_read, codes, parts, bits))


def _read(codes: Any, parts: list[Any], bits: int, start: int, stop: int) -> Codes:
    unpacked = [unpack_words(words(piece), bits) for piece in row_pieces(codes, start, stop)]
    scales = [np.concatenate([numbers(piece) for piece in row_pieces(part, start, stop)]) for part in parts]
    return np.concatenate(unpacked), scales
