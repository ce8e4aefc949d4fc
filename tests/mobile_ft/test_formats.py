"""Packed formats against the gguf package's own decoding of the same bytes."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize

from mobile_ft.formats import BLOCK_BYTES, FORMATS, GGUF_BLOCK_BYTES, pack_gguf, unpack


def random_gguf(fmt: str, rows: int, cols: int) -> np.ndarray:
    """Random blocks with finite scales."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (rows * cols // 32, GGUF_BLOCK_BYTES[fmt]), dtype=np.uint8)
    floats = {"q4_0": 1, "q4_1": 2, "q8_0": 1, "f16": 32}[fmt]
    raw[:, : 2 * floats] = rng.standard_normal((len(raw), floats)).astype(np.float16).view(np.uint8)
    return raw


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("rows", "cols"), [(16, 32), (48, 96), (20, 64), (1, 32)])
def test_pack_then_unpack_is_ggufs_value(fmt: str, rows: int, cols: int) -> None:
    raw = random_gguf(fmt, rows, cols)
    packed = pack_gguf(raw, fmt, rows, cols)
    assert packed.data.shape == (-(-rows // 16), cols // 32, BLOCK_BYTES[fmt])
    if fmt == "f16":
        expected = raw.view(np.float16).astype(np.float32).reshape(rows, cols)
    else:
        expected = dequantize(raw.reshape(rows, -1), GGMLQuantizationType[fmt.upper()])
    assert np.array_equal(unpack(packed.data, fmt, rows), expected)


def test_nothing_is_added_to_ggufs_bytes() -> None:
    raw = random_gguf("q4_1", 64, 128)
    assert pack_gguf(raw, "q4_1", 64, 128).data.nbytes == raw.nbytes


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 32"):
        pack_gguf(np.zeros(18, np.uint8), "q4_0", 1, 33)
    with pytest.raises(ValueError, match="needs 36"):
        pack_gguf(np.zeros(18, np.uint8), "q4_0", 1, 64)
