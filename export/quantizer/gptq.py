"""Reads GPTQ's weights (arXiv 2210.17323) in the format of AutoGPTQ and GPTQModel: 32-bit words, lowest code first.

A word has eight 4-bit codes or four 8-bit codes, from one column of qweight [in, out] or one row of qzeros [groups,
out]. qzeros has zero - 1 in checkpoint_format gptq, and zero in gptq_v2.
"""

from functools import partial

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import QuantizedWeight, Reader, Settings, setting, unpack_words
from mobile_ft.export.quantizer.tensors import Tensors, words
from mobile_ft.export.quantizer.zero_points import group_size, zero_point_weight
from mobile_ft.model.formats import U8


def gptq_reader(source: str, settings: Settings) -> Reader:
    """Returns the reader for these settings. Raises UserError if they are not supported."""
    bits = setting(source, settings, "bits", (4, 8))
    # Transformers' name for it is format.
    key = "checkpoint_format" if "checkpoint_format" in settings else "format"
    first = 1 if setting(source, settings, key, ("gptq", "gptq_v2"), "gptq") == "gptq" else 0
    return partial(_open, bits, group_size(source, settings), first, bool(settings.get("desc_act")))


def _open(
    bits: int, group: int | None, first: int, reordered: bool, tensors: Tensors, name: str
) -> QuantizedWeight | None:
    module = name.removesuffix(".weight")
    if f"{module}.qweight" not in tensors.names:
        return None
    per_word = 32 // bits
    high, rows = tensors.matrix_shape(f"{module}.qweight")
    cols = high * per_word
    group = group or cols
    qweight = tensors.get(f"{module}.qweight", ("I32",), [high, rows])
    qzeros = tensors.get(f"{module}.qzeros", ("I32",), [-(-cols // group), -(-rows // per_word)])
    if reordered or f"{module}.g_idx" in tensors.names:
        group_of = words(tensors.get(f"{module}.g_idx", ("I32",), [cols])[:])
        if not np.array_equal(group_of, np.arange(cols) // group):
            raise UserError(
                f"{tensors.where(f'{module}.g_idx')}: tensor {module}.g_idx permutes columns (desc_act), which is not "
                "supported; quantize the model without desc_act"
            )

    def codes(start: int, stop: int) -> U8:
        return unpack_words(words(qweight[:, start:stop]).T, bits)

    def zeros(start: int, stop: int) -> U8:
        stored = unpack_words(words(qzeros[:, start // per_word : -(-stop // per_word)]), bits)[:, : stop - start]
        if first and (stored == (1 << bits) - 1).any():
            raise UserError(
                f"{tensors.where(f'{module}.qzeros')}: tensor {module}.qzeros has a zero point that does not fit "
                f"{bits} bits; set checkpoint_format to 'gptq_v2' if its zero points are not reduced by 1"
            )
        return stored + np.uint8(first)

    return zero_point_weight(tensors, module, bits, rows, cols, group, codes, zeros)
