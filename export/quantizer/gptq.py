"""GPTQ's weights (arXiv 2210.17323) as AutoGPTQ and GPTQModel write them, in words of 32 bits, the lowest code first.

Words hold 8 codes of 4 bits, or 4 of 8, of one column of qweight [in, out] and of one row of qzeros [groups, out].
checkpoint_format gptq has zero - 1 there, gptq_v2 zero itself.
"""

from functools import partial

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import QuantizedWeight, Reader, Settings, setting, unpack_words
from mobile_ft.export.quantizer.tensors import Tensors, words
from mobile_ft.export.quantizer.zero_points import group_size, zero_point_weight
from mobile_ft.model.formats import U8


def gptq_reader(source: str, settings: Settings) -> Reader:
    """Raises UserError where the settings have no like here."""
    bits = setting(source, settings, "bits", (4, 8))
    # Transformers calls it format.
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
                f"{tensors.where(f'{module}.g_idx')}: tensor {module}.g_idx permutes columns (desc_act); supported: "
                "groups of columns in their order"
            )

    def codes(start: int, stop: int) -> U8:
        return unpack_words(words(qweight[:, start:stop]).T, bits)

    def zeros(start: int, stop: int) -> U8:
        stored = unpack_words(words(qzeros[:, start // per_word : -(-stop // per_word)]), bits)[:, : stop - start]
        if first and (stored == (1 << bits) - 1).any():
            raise UserError(
                f"{tensors.where(f'{module}.qzeros')}: tensor {module}.qzeros has a zero point that does not fit "
                f"{bits} bits; checkpoint_format 'gptq' has it less 1, 'gptq_v2' as it is"
            )
        return stored + np.uint8(first)

    return zero_point_weight(tensors, module, bits, rows, cols, group, codes, zeros)
