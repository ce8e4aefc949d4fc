"""Random blocks of every type against the gguf package's decoding of the same bytes."""

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from mobile_ft.export.source.gguf_blocks import PACKED_FORMATS, numbers, take_apart
from mobile_ft.export.source.source import Conversions
from mobile_ft.model.formats import FORMATS, U8, pack, unpack

Q = GGMLQuantizationType
HALVES = {  # of a block, where its scale and minimum are
    Q.Q2_K: (80, 82),
    Q.Q3_K: (108,),
    Q.Q6_K: (208,),
    **dict.fromkeys((Q.Q4_1, Q.Q5_1, Q.Q4_K, Q.Q5_K), (0, 2)),
    **dict.fromkeys((Q.Q4_0, Q.Q5_0, Q.Q8_0, Q.IQ4_NL, Q.IQ4_XS), (0,)),
}
ROUNDED = (Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_XS, Q.F32)  # float16 holds most of BF16


def random_rows(kind: Q, rows: int, cols: int, size: float = 1.0) -> U8:
    """Rows of random codes, whose scales and minima are of that size; or random numbers of it."""
    rng = np.random.default_rng(0)
    if kind not in HALVES:
        values = (size * rng.standard_normal((rows, cols))).astype(np.float32)
        if kind == Q.BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return (values.astype(np.float16) if kind == Q.F16 else values).view(np.uint8)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows, cols // block, block_bytes), dtype=np.uint8)
    for place in HALVES[kind]:
        halves = (size * rng.standard_normal((rows, cols // block, 1))).astype(np.float16)
        raw[..., place : place + 2] = halves.view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize("kind", PACKED_FORMATS, ids=lambda kind: kind.name)
def test_values_are_ggufs(kind: Q) -> None:
    """Kept exactly, or each scale, minimum or number to float16's 11 bits."""
    raw, fmt = random_rows(kind, 40, 512), PACKED_FORMATS[kind]
    expected = dequantize(raw, kind).reshape(40, 512)
    rows = take_apart(raw, kind)
    assert np.array_equal(rows.values, expected)
    packed = unpack(pack(fmt, rows.codes, rows.header).data, fmt, 40)
    assert np.array_equal(packed, expected) == (kind not in ROUNDED)
    # value = scale * level + minimum: the largest of each is at most twice the largest of scale * level and of value.
    largest = np.repeat(np.abs(expected).reshape(40, -1, FORMATS[fmt].group).max(-1), FORMATS[fmt].group, axis=-1)
    spread = 3 * largest if len(HALVES.get(kind, ())) == 2 else np.abs(expected)
    assert np.all(np.abs(packed - expected) <= spread * 2.0**-11 + 2.0**-25)


@pytest.mark.parametrize("kind", PACKED_FORMATS, ids=lambda kind: kind.name)
def test_the_error_is_stated(kind: Q) -> None:
    raw, fmt = random_rows(kind, 40, 512), PACKED_FORMATS[kind]
    rows, record = take_apart(raw, kind), Conversions()
    packed = pack(fmt, rows.codes, rows.header).data
    record.add(kind.name, rows.values, packed, fmt)
    expected = dequantize(raw, kind).reshape(40, 512).astype(np.float64)
    error = np.sqrt(np.sum((unpack(packed, fmt, 40) - expected) ** 2) / np.sum(expected**2))
    (found,) = record.to_list()
    assert (found.source, found.format, found.weights) == (kind.name, fmt, 40 * 512)
    assert np.isclose(found.error, error, rtol=1e-4)
    assert (2.0**-16 < found.error < 2.0**-10) if kind in ROUNDED else found.error == 0


def test_nothing_is_added_to_ggufs_bytes() -> None:
    for kind in (Q.Q4_0, Q.Q4_1, Q.Q8_0, Q.F16):
        raw = random_rows(kind, 64, 256)
        rows = take_apart(raw, kind)
        packed = pack(PACKED_FORMATS[kind], rows.codes, rows.header).data
        assert packed.nbytes == raw.nbytes


@pytest.mark.parametrize("kind", HALVES, ids=lambda kind: kind.name)
def test_scales_that_are_no_numbers(kind: Q) -> None:
    for place in HALVES[kind]:
        for half in (np.inf, -np.inf, np.nan):
            raw = random_rows(kind, 16, 256)
            raw[3, place : place + 2] = np.array([half], np.float16).view(np.uint8)
            with pytest.raises(ValueError, match="^has values that are not finite$"):
                take_apart(raw, kind)


@pytest.mark.parametrize("kind", [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K], ids=lambda kind: kind.name)
def test_scales_that_float16_does_not_hold(kind: Q) -> None:
    raw = random_rows(kind, 16, 256)
    raw[3, HALVES[kind][0] : HALVES[kind][0] + 2] = np.array([60000], np.float16).view(np.uint8)
    with pytest.raises(ValueError, match="^has values that are too large for float16$"):
        take_apart(raw, kind)


def test_numbers() -> None:
    for kind in (Q.F32, Q.F16, Q.BF16):
        raw = random_rows(kind, 1, 33).reshape(-1)
        assert np.array_equal(numbers(raw, kind), dequantize(raw, kind))
    with pytest.raises(ValueError, match="has type Q4_0; it must be one of F16, BF16, F32"):
        numbers(np.zeros(18, np.uint8), Q.Q4_0)
    with pytest.raises(ValueError, match="not finite"):
        numbers(np.array([np.nan], np.float32).view(np.uint8), Q.F32)
    with pytest.raises(ValueError, match="too large for float16"):
        take_apart(np.full((1, 32), 1e6, np.float32).view(np.uint8), Q.F32)
