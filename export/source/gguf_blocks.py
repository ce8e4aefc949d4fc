"""Unpacks GGUF's blocks, and maps each supported type of tensor to the packed format that represents it best.

Types with small blocks, IQ4_NL and F16 are stored exactly. In types with blocks of 256 columns (Q2_K to Q6_K, IQ4_XS),
a group's scale is a float16 times a small integer. This product is rounded to float16, and so is the minimum; codes do
not change. BF16 and F32 are rounded to float16.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from mobile_ft.model.formats import F32, FORMATS, U8, decode

_Type = GGMLQuantizationType


class CodedRows(NamedTuple):
    """Rows of a matrix that are ready to be packed."""

    codes: U8 | np.ndarray  # [rows, cols], uint8; uint16 for f16
    header: U8  # [rows, groups, bytes of scale and minimum]
    values: F32  # [rows, cols], the weights in the file


class _Groups(NamedTuple):
    """Groups of codes: value = scale * level + minimum, with the packed format's level of a code."""

    codes: U8  # [.., columns of a block]
    scale: F32  # [.., groups of a block]
    minimum: F32 | None = None


def _bits(data: U8, width: int, run: int) -> U8:
    """Unpacks codes of `width` bits: for each `run` bytes, first the codes in the lowest bits, then those above."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    codes: U8 = data.reshape(*data.shape[:-1], -1, 1, run) >> shifts & np.uint8((1 << width) - 1)
    return codes.reshape(*data.shape[:-1], -1)


def _half(data: U8) -> F32:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _split(data: U8, *sizes: int) -> list[U8]:
    """Splits a block into parts of these sizes in bytes."""
    return np.split(data, np.cumsum(sizes)[:-1], axis=-1)


def _above(low: U8, high: U8, width: int) -> U8:
    """Combines codes of `width` bits with their higher bits."""
    codes: U8 = low | high << np.uint8(width)
    return codes


def _below_zero(codes: U8, offset: int) -> U8:
    """Returns code - offset as the byte of an int8."""
    return codes - np.uint8(offset)  # wraps around, as two's complement does


def _q4_0(block: U8) -> _Groups:
    scale, codes = _split(block, 2, 16)
    return _Groups(_bits(codes, 4, 16), _half(scale))


def _q4_1(block: U8) -> _Groups:
    scale, minimum, codes = _split(block, 2, 2, 16)
    return _Groups(_bits(codes, 4, 16), _half(scale), _half(minimum))


def _q5_0(block: U8) -> _Groups:
    scale, high, low = _split(block, 2, 4, 16)
    return _Groups(_below_zero(_above(_bits(low, 4, 16), _bits(high, 1, 1), 4), 16), _half(scale))


def _q5_1(block: U8) -> _Groups:
    scale, minimum, high, low = _split(block, 2, 2, 4, 16)
    return _Groups(_above(_bits(low, 4, 16), _bits(high, 1, 1), 4), _half(scale), _half(minimum))


def _q8_0(block: U8) -> _Groups:
    scale, codes = _split(block, 2, 32)
    return _Groups(codes, _half(scale))


def _iq4_xs(block: U8) -> _Groups:
    scale, high, low, codes = _split(block, 2, 2, 4, 128)
    factors = _above(_bits(low, 4, 1), _bits(high, 2, 1), 4).astype(np.float32) - 32
    return _Groups(_bits(codes, 4, 16), _half(scale) * factors)


def _q2_k(block: U8) -> _Groups:
    factors, codes, scale, minimum = _split(block, 16, 64, 2, 2)
    return _Groups(_bits(codes, 2, 32), _half(scale) * (factors & 15), -_half(minimum) * (factors >> 4))


def _q3_k(block: U8) -> _Groups:
    high, low, factors, scale = _split(block, 32, 64, 12, 2)
    factors = _above(_bits(factors[..., :8], 4, 8), _bits(factors[..., 8:], 2, 4), 4)
    codes = _above(_bits(low, 2, 32), _bits(high, 1, 32), 2) + np.uint8(
        4
    )  # these codes start at -4, those of q4_0 at -8
    return _Groups(codes, _half(scale) * (factors.astype(np.float32) - 32))


def _k_factors(packed: U8) -> tuple[U8, U8]:
    """Unpacks the eight scales and eight minima of Q4_K and Q5_K, 6 bits each."""
    scales, minima, rest = _split(packed, 4, 4, 4)
    low, high = _split(_bits(rest, 4, 4), 4, 4)
    return _six_bits(scales, low), _six_bits(minima, high)


def _six_bits(first: U8, rest: U8) -> U8:
    """Unpacks four 6-bit numbers, and four more whose upper 2 bits are above them."""
    return np.concatenate([first & np.uint8(63), _above(rest, first >> np.uint8(6), 4)], axis=-1)


def _q4_k(block: U8) -> _Groups:
    scale, minimum, factors, codes = _split(block, 2, 2, 12, 128)
    scales, minima = _k_factors(factors)
    return _Groups(_bits(codes, 4, 32), _half(scale) * scales, -_half(minimum) * minima)


def _q5_k(block: U8) -> _Groups:
    scale, minimum, factors, high, low = _split(block, 2, 2, 12, 32, 128)
    scales, minima = _k_factors(factors)
    codes = _above(_bits(low, 4, 32), _bits(high, 1, 32), 4)
    return _Groups(codes, _half(scale) * scales, -_half(minimum) * minima)


def _q6_k(block: U8) -> _Groups:
    low, high, factors, scale = _split(block, 128, 64, 16, 2)
    codes = _below_zero(_above(_bits(low, 4, 64), _bits(high, 2, 32), 4), 32)
    return _Groups(codes, _half(scale) * factors.view(np.int8))


_BLOCKS: dict[_Type, tuple[str, Callable[[U8], _Groups]]] = {
    _Type.Q4_0: ("q4_0", _q4_0),
    _Type.Q4_1: ("q4_1", _q4_1),
    _Type.Q5_0: ("q8_0", _q5_0),
    _Type.Q5_1: ("q8_1", _q5_1),
    _Type.Q8_0: ("q8_0", _q8_0),
    _Type.Q2_K: ("q4_1_g16", _q2_k),
    _Type.Q3_K: ("q4_0_g16", _q3_k),
    _Type.Q4_K: ("q4_1", _q4_k),
    _Type.Q5_K: ("q8_1", _q5_k),
    _Type.Q6_K: ("q8_0_g16", _q6_k),
    _Type.IQ4_NL: ("iq4_nl", _q4_0),
    _Type.IQ4_XS: ("iq4_nl", _iq4_xs),
}
_NUMBERS = (_Type.F16, _Type.BF16, _Type.F32)
# The packed format of every supported type of matrix.
PACKED_FORMATS: dict[_Type, str] = {kind: fmt for kind, (fmt, _) in _BLOCKS.items()} | dict.fromkeys(_NUMBERS, "f16")


def numbers(raw: U8, kind: GGMLQuantizationType) -> F32:
    """Decodes rows of type F32, F16 or BF16. Raises ValueError for another type, and for values that are not finite."""
    if kind == _Type.F32:
        values = raw.view("<f4")
    elif kind == _Type.F16:
        values = raw.view("<f2").astype(np.float32)
    elif kind == _Type.BF16:
        values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        raise ValueError(f"has type {kind.name}; it must be one of {', '.join(t.name for t in _NUMBERS)}")
    return _finite(values)


def take_apart(raw: U8, kind: GGMLQuantizationType) -> CodedRows:
    """Unpacks rows of blocks [rows, bytes] of a type in PACKED_FORMATS. Raises ValueError if values are not finite or
    too large for the packed format."""
    rows, fmt = len(raw), FORMATS[PACKED_FORMATS[kind]]
    if kind in _NUMBERS:
        values = numbers(raw, kind)
        return CodedRows(
            _halves(values).view(np.uint16), np.empty((rows, values.shape[1] // fmt.group, 0), np.uint8), values
        )
    blocks = raw.reshape(rows, -1, GGML_QUANT_SIZES[kind][1])
    with np.errstate(invalid="ignore", over="ignore"):  # for scales that are not numbers
        found = _BLOCKS[kind][1](blocks)
        codes, scale = found.codes.reshape(rows, -1, fmt.group), found.scale.reshape(rows, -1, 1)
        minimum = None if found.minimum is None else found.minimum.reshape(rows, -1, 1)
        values = _finite(decode(fmt.kind, codes, scale, minimum))
    header = [_halves(x) for x in (scale, minimum) if x is not None]
    return CodedRows(codes.reshape(rows, -1), np.concatenate(header, axis=-1).view(np.uint8), values.reshape(rows, -1))


def _finite(values: F32) -> F32:
    if not np.isfinite(values).all():
        raise ValueError("has values that are not finite")
    return values


def _halves(values: F32) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ValueError("has values that are too large for float16")
    return halves
