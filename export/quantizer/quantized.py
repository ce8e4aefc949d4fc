"""Common parts of the readers of quantized checkpoints: converts a weight's codes and scales to our formats."""

import math
from collections.abc import Callable, Iterator
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
    """A quantized weight W [rows, cols] of a checkpoint.

    `read(start, stop)` returns the codes of these n rows, uint8 [n, cols], as `formats.pack` expects them, and their
    scales and (if the format has them) minima, float32 [n, cols / group] each.
    """

    format: str
    rows: int
    cols: int
    read: Callable[[int, int], Codes]


# Returns the quantized weight of a name, or None if the weight is not quantized.
Reader = Callable[[Tensors, str], QuantizedWeight | None]


def setting(source: str, settings: Settings, key: str, supported: tuple, default: Any = None) -> Any:
    """Returns a setting of the quantization. Raises UserError, with the file's name, if its value is not supported."""
    value = settings.get(key, default)
    for known in supported:
        if value == known:
            return known
    names = ", ".join(map(repr, supported))
    raise UserError(f"{source}: {key} of the quantization is {value!r}; supported: {names}")


def format_name(where: str, kind: str, cols: int, group: int) -> str:
    """Returns the format of a kind with the widest groups that divide both rows of `cols` and groups of `group`.

    Raises UserError if there is none.
    """
    common = math.gcd(cols, group)
    fitting = [(f.group, name) for name, f in FORMATS.items() if f.kind == kind and common % f.group == 0]
    if not fitting:
        raise UserError(
            f"{where}: {cols} columns in groups of {group} do not fit any {kind} format; its groups must divide both"
        )
    return max(fitting)[1]


def unpack_words(words: npt.NDArray[np.uint32], bits: int) -> U8:
    """Unpacks codes of `bits` bits, the lowest of each word first: [n, m] to [n, m * 32 / bits]."""
    codes = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)
    return codes.astype(np.uint8).reshape(len(words), -1)


def runs(start: int, stop: int, rows: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """Yields (part, start, stop) for rows of a matrix that has `rows` rows of each part in turn, again and again."""
    while start < stop:
        block, row = divmod(start, rows)
        repeat, part = divmod(block, parts)
        count = min(rows - row, stop - start)
        yield part, repeat * rows + row, repeat * rows + row + count
        start += count


def in_turn(weights: list[QuantizedWeight], times: int) -> QuantizedWeight:
    """Joins weights of one format and shape: a `times`-th part of each weight's rows in turn."""
    first = weights[0]
    if any((w.format, w.rows, w.cols) != (first.format, first.rows, first.cols) for w in weights):
        raise ValueError("has parts with different formats or shapes")

    def read(start: int, stop: int) -> Codes:
        pieces = [weights[w].read(a, b) for w, a, b in runs(start, stop, first.rows // times, len(weights))]
        scales = zip(*(parts for _, parts in pieces), strict=True)
        return np.concatenate([codes for codes, _ in pieces]), [np.concatenate(part) for part in scales]

    return QuantizedWeight(first.format, first.rows * len(weights), first.cols, read)


def decode_rows(name: str, codes: U8, parts: list[F32]) -> F32:
    """Decodes codes with unrounded scales and minima to weights, float32 [n, cols]."""
    scale, *minimum = (np.repeat(part, FORMATS[name].group, axis=1) for part in parts)
    return decode(FORMATS[name].kind, codes, scale, minimum[0] if minimum else None)
