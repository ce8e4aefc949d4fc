"""What the readers of quantized checkpoints have in common: a weight's codes and scales, in terms of our formats."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_ft.errors import UserError
from mobile_ft.export.quantizer.tensors import Tensors
from mobile_ft.model.formats import F32, FORMATS, U8, decode

Settings = dict[str, Any]
Codes = tuple[U8, list[F32]]


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight W [rows, cols] that a checkpoint holds in codes.

    `read(start, stop)` gives the codes uint8 [n, cols] of so many rows as `formats.pack` takes them, and their scales
    and, where the format has them, minima, float32 [n, cols / group] each.
    """

    format: str
    rows: int
    cols: int
    read: Callable[[int, int], Codes]


# The weight of that name as the checkpoint has it quantized; None where it is a plain one.
Reader = Callable[[Tensors, str], QuantizedWeight | None]


def setting(source: str, settings: Settings, key: str, supported: tuple, default: Any = None) -> Any:
    """What the quantization's settings say. Raises UserError naming the file where it is not among the supported."""
    value = settings.get(key, default)
    for known in supported:
        if value == known:
            return known
    names = ", ".join(map(repr, supported))
    raise UserError(f"{source}: {key} of the quantization is {value!r}; supported: {names}")


def format_name(where: str, kind: str, cols: int, group: int) -> str:
    """The format of that kind with the widest groups that both rows of `cols` and groups of `group` can be cut into.

    Raises UserError where there is none.
    """
    common = math.gcd(cols, group)
    fitting = [(f.group, name) for name, f in FORMATS.items() if f.kind == kind and common % f.group == 0]
    if not fitting:
        raise UserError(f"{where}: {cols} columns in groups of {group} cannot be cut into the groups of any {kind}")
    return max(fitting)[1]


def unpack_words(words: npt.NDArray[np.uint32], bits: int) -> U8:
    """Codes of so many bits, the lowest of each word first: [n, m] to [n, m * 32 / bits]."""
    codes = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)
    return codes.astype(np.uint8).reshape(len(words), -1)


def decode_rows(name: str, codes: U8, parts: list[F32]) -> F32:
    """The weights float32 [n, cols] that codes, scales and minima of a format stand for before these are rounded."""
    scale, *minimum = (np.repeat(part, FORMATS[name].group, axis=1) for part in parts)
    return decode(FORMATS[name].kind, codes, scale, minimum[0] if minimum else None)
