"""Reads AWQ's weights (arXiv 2306.00978) in AutoAWQ's version gemm, which has eight 4-bit codes per 32-bit word.

Words follow the rows of qweight [in, out] and qzeros [groups, out]. A word has its 8 columns in the order
0 2 4 6 1 3 5 7.
"""

from functools import partial
from typing import Any

import numpy as np

from mobile_ft.export.quantizer.quantized import QuantizedWeight, Reader, Settings, setting, unpack_words
from mobile_ft.export.quantizer.tensors import Tensors, words
from mobile_ft.export.quantizer.zero_points import group_size, zero_point_weight
from mobile_ft.model.formats import U8

_BITS, _PER_WORD = 4, 8
_PLACES = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])  # position of each column in a word


def awq_reader(source: str, settings: Settings) -> Reader:
    """Returns the reader for these settings. Raises UserError if they are not supported."""
    setting(source, settings, "bits", (_BITS,))
    version = settings.get("version")
    setting(source, {"version": version.lower() if isinstance(version, str) else version}, "version", ("gemm",))
    return partial(_open, group_size(source, settings))


def _open(group: int | None, tensors: Tensors, name: str) -> QuantizedWeight | None:
    module = name.removesuffix(".weight")
    if f"{module}.qweight" not in tensors.names:
        return None
    cols, wide = tensors.matrix_shape(f"{module}.qweight")
    rows = wide * _PER_WORD
    group = group or cols
    qweight = tensors.get(f"{module}.qweight", ("I32",), [cols, wide])
    qzeros = tensors.get(f"{module}.qzeros", ("I32",), [-(-cols // group), wide])

    def part(tensor: Any, start: int, stop: int) -> U8:
        codes = unpack_words(words(tensor[:, start // _PER_WORD : stop // _PER_WORD]), _BITS)
        return codes.reshape(len(codes), -1, _PER_WORD)[..., _PLACES].reshape(len(codes), -1)

    def codes(start: int, stop: int) -> U8:
        return part(qweight, start, stop).T

    return zero_point_weight(tensors, module, _BITS, rows, cols, group, codes, partial(part, qzeros))
