"""Weights with integer zero points, w = scale * (code - zero), of GPTQ and AWQ. Scales and zeros are [groups, rows].

If every zero is the middle of the codes, the format is exactly q4_0 or q8_0; otherwise a minimum replaces the zero.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.quantized import Codes, QuantizedWeight, Settings, format_name
from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers
from mobile_ft.model.formats import F32, FORMATS, U8

_KINDS = {4: ("q4_0", "q4_1"), 8: ("q8_0", "q8_1")}

Part = Callable[[int, int], U8]  # (start, stop) -> part of these rows


def group_size(source: str, settings: Settings) -> int | None:
    """Returns the group size, or None if a whole row is one group."""
    group = settings.get("group_size")
    if type(group) is not int or (group < 1 and group != -1):
        raise UserError(f"{source}: group_size of the quantization is {group!r}; it must be a number of columns, or -1")
    return None if group == -1 else group


def zero_point_weight(
    tensors: Tensors, module: str, bits: int, rows: int, cols: int, group: int, codes: Part, zeros: Part
) -> QuantizedWeight:
    """Returns the weight with codes [n, cols] and zeros [groups, n]. Raises UserError if no format fits."""
    where = f"{tensors.where(f'{module}.qweight')}: {module}"
    scales = tensors.get(f"{module}.scales", FLOATS, [-(-cols // group), rows])
    middle = 1 << (bits - 1)
    symmetric = bool((zeros(0, rows) == middle).all())
    fmt = format_name(where, _KINDS[bits][0 if symmetric else 1], cols, group)
    of_group = np.arange(0, cols, FORMATS[fmt].group) // group
    return QuantizedWeight(fmt, rows, cols, partial(_read, codes, zeros, scales, of_group, symmetric, middle))


def _read(
    codes: Part, zeros: Part, scales: Any, of_group: Any, symmetric: bool, middle: int, start: int, stop: int
) -> Codes:
    q, scale = codes(start, stop), numbers(scales[:, start:stop])[of_group].T
    if symmetric:
        return q ^ np.uint8(128) if middle == 128 else q, [scale]  # 8-bit codes are signed, 4-bit codes start at 0
    minimum: F32 = -scale * zeros(start, stop)[of_group].T
    return q, [scale, minimum]
