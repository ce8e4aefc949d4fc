"""Weights with whole zero points, w = scale * (code - zero), which GPTQ and AWQ share: scales and zeros [groups, rows].

Where every zero is in the middle of the codes this is q4_0 or q8_0, exactly; else a minimum takes its place.
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

Part = Callable[[int, int], U8]  # of the rows from one to another


def group_size(source: str, settings: Settings) -> int | None:
    """None where a whole row is one group."""
    group = settings.get("group_size")
    if type(group) is not int or (group < 1 and group != -1):
        raise UserError(
            f"{source}: group_size of the quantization is {group!r}; it should be a number of columns, or -1"
        )
    return None if group == -1 else group


def zero_point_weight(
    tensors: Tensors, module: str, bits: int, rows: int, cols: int, group: int, codes: Part, zeros: Part
) -> QuantizedWeight:
    """Of codes [n, cols] and zeros [groups, n]. Raises UserError where they fit no format."""
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
        return q ^ np.uint8(128) if middle == 128 else q, [scale]  # as signed numbers of 8 bits, from 0 in 4 bits
    minimum: F32 = -scale * zeros(start, stop)[of_group].T
    return q, [scale, minimum]
