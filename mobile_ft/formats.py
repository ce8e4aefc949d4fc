"""Packed weight formats: 16-row panels of 32-column blocks (docs/bundle_format.md).

Packing permutes the bytes of GGUF's quantized blocks, so nothing is ever re-quantized.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PANEL_ROWS = 16
GROUP = 32
FORMATS = ("q4_0", "q4_1", "q8_0", "f16")
BLOCK_BYTES = {"q4_0": 288, "q4_1": 320, "q8_0": 544, "f16": 1024}

# Bytes of one GGUF block: 32 consecutive values of one row.
GGUF_BLOCK_BYTES = {"q4_0": 18, "q4_1": 20, "q8_0": 34, "f16": 64}

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PackedWeight:
    """One linear layer's weight W [rows, cols] as uint8 [ceil(rows / 16), cols / 32, block_bytes]."""

    data: U8
    format: str
    rows: int
    cols: int


def pack_gguf(raw: U8, fmt: str, rows: int, cols: int) -> PackedWeight:
    """Packs GGUF blocks `raw` (uint8, rows * cols / 32 blocks) into panels. Raises ValueError on a wrong size."""
    if cols % GROUP:
        raise ValueError(f"{cols} columns: a packed weight needs a multiple of {GROUP}")
    groups = cols // GROUP
    expected = rows * groups * GGUF_BLOCK_BYTES[fmt]
    if raw.size != expected:
        raise ValueError(f"{raw.size} bytes of {fmt} where [{rows}, {cols}] needs {expected}")
    panels = -(-rows // PANEL_ROWS)
    blocks = raw.reshape(rows, groups, GGUF_BLOCK_BYTES[fmt])
    if panels * PANEL_ROWS != rows:
        blocks = np.concatenate([blocks, np.zeros((panels * PANEL_ROWS - rows, *blocks.shape[1:]), np.uint8)])
    tiles = blocks.reshape(panels, PANEL_ROWS, groups, -1).transpose(0, 2, 1, 3)  # [panel, group, row, byte]
    out = np.empty((panels, groups, BLOCK_BYTES[fmt]), np.uint8)
    if fmt == "f16":
        values = np.ascontiguousarray(tiles).view(np.uint16)  # [panel, group, 16, 32]
        out.view(np.uint16).reshape(panels, groups, GROUP, PANEL_ROWS)[:] = values.swapaxes(2, 3)
        return PackedWeight(out, fmt, rows, cols)
    header = 2 if fmt != "q4_1" else 4  # f16 scale, and minimum
    for i in range(0, header, 2):
        out[..., i * PANEL_ROWS : (i + 2) * PANEL_ROWS] = tiles[..., i : i + 2].reshape(panels, groups, -1)
    codes = tiles[..., header:]
    body = out[..., header * PANEL_ROWS :]
    if fmt == "q8_0":
        body.reshape(panels, groups, GROUP, PANEL_ROWS)[:] = codes.swapaxes(2, 3)
        return PackedWeight(out, fmt, rows, cols)
    # GGUF: byte i of a row's 16 holds column i (low nibble) and column i + 16 (high nibble).
    columns = np.concatenate([codes & 15, codes >> 4], axis=-1).swapaxes(2, 3)  # [panel, group, 32, 16]
    packed = columns[..., :8] | (columns[..., 8:] << 4)
    body.reshape(panels, groups, GROUP, PANEL_ROWS // 2)[:] = packed
    return PackedWeight(out, fmt, rows, cols)


def unpack(data: U8, fmt: str, rows: int) -> F32:
    """Decodes a packed weight to dense float32 [rows, cols]: the reference for kernels and tests."""
    panels, groups, _ = data.shape
    if fmt == "f16":
        values = data.view(np.float16).reshape(panels, groups, GROUP, PANEL_ROWS).astype(np.float32)
    else:
        scale = data[..., : 2 * PANEL_ROWS].copy().view(np.float16).astype(np.float32)[:, :, None, :]
        if fmt == "q8_0":
            codes = data[..., 2 * PANEL_ROWS :].copy().view(np.int8).reshape(panels, groups, GROUP, PANEL_ROWS)
            values = scale * codes.astype(np.float32)
        else:
            header = 4 if fmt == "q4_1" else 2
            packed = data[..., header * PANEL_ROWS :].reshape(panels, groups, GROUP, PANEL_ROWS // 2)
            codes = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
            if fmt == "q4_1":
                minimum = data[..., 2 * PANEL_ROWS : 4 * PANEL_ROWS].copy().view(np.float16)
                values = scale * codes + minimum.astype(np.float32)[:, :, None, :]
            else:
                values = scale * (codes - 8)
    dense = values.transpose(0, 3, 1, 2).reshape(panels * PANEL_ROWS, groups * GROUP)
    return np.ascontiguousarray(dense[:rows])
