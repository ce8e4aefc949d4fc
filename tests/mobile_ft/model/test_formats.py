"""Packed formats against their description, and codebooks against bitsandbytes' and gguf's."""

import gguf
import numpy as np
import pytest

from mobile_ft.model.formats import (
    CODEBOOKS,
    FORMATS,
    PackedWeight,
    gguf_blocks,
    pack,
    packed_shape,
    parse_format,
    unpack,
)


def random_weight(
    name: str, rows: int, cols: int, scale: float = 1.0, seed: int = 0
) -> tuple[PackedWeight, np.ndarray]:
    """A random packed weight and its dense float64 value, from the description of the format."""
    rng, fmt = np.random.default_rng(seed), parse_format(name)
    if fmt.kind == "f16":
        values = (scale * rng.standard_normal((rows, cols))).astype(np.float16)
        return pack(name, values.view(np.uint16), np.empty((rows, cols // 32, 0), np.uint8)), values.astype(np.float64)
    dtype = np.float32 if fmt.kind in ("nf4", "fp4") else np.float16
    numbers = (scale * rng.standard_normal((2, rows, cols // fmt.group, 1))).astype(dtype)
    codes = rng.integers(0, 256 if fmt.kind in ("q8_0", "q8_1") else 16, (rows, cols), dtype=np.uint8)
    steps, low = (np.repeat(x[..., 0].astype(np.float64), fmt.group, axis=1) for x in numbers)
    header = np.concatenate(numbers, axis=-1) if fmt.kind in ("q4_1", "q8_1") else numbers[0]
    packed = pack(name, codes, header.view(np.uint8))
    if fmt.kind == "q8_0":
        return packed, steps * codes.view(np.int8)
    if fmt.kind == "q4_0":
        return packed, steps * (codes.astype(np.float64) - 8)
    if fmt.kind in ("q4_1", "q8_1"):
        return packed, steps * codes + low
    return packed, steps * CODEBOOKS[fmt.kind][codes]


@pytest.mark.parametrize("name", FORMATS)
def test_pack_then_unpack(name: str) -> None:
    packed, dense = random_weight(name, 20, 256)
    np.testing.assert_allclose(unpack(packed.data, name, 20), dense, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_codebooks_are_bitsandbytes(kind: str) -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    expected = functional.get_4bit_type(kind, device="cpu").numpy()
    np.testing.assert_allclose(CODEBOOKS[kind], expected, rtol=1e-6)


def test_codebook_of_iq4_nl_is_ggufs() -> None:
    assert CODEBOOKS["iq4_nl"].tolist() == list(gguf.quants.IQ4_NL.kvalues)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        packed_shape("q4_0", 1, 33)
    with pytest.raises(ValueError, match="multiple of 128"):
        packed_shape("nf4_g128", 16, 64)
    with pytest.raises(ValueError, match="unknown weight format 'q5_0'"):
        parse_format("q5_0")


@pytest.mark.parametrize("kind", ["q4_0", "q4_1", "iq4_nl", "q8_0"])
def test_gguf_blocks(kind: str) -> None:
    """As the package gguf decodes them."""
    packed, _ = random_weight(kind, 37, 96)
    blocks = gguf_blocks(packed.data, kind, 37)
    decoded = gguf.dequantize(blocks, gguf.GGMLQuantizationType[kind.upper()])
    np.testing.assert_allclose(decoded, unpack(packed.data, kind, 37), rtol=1e-6)
