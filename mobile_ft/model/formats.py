"""Packed weight formats: 16-row panels of one-group-wide blocks (docs/reference/bundle_format.md).

A format's name is its kind of code, `q4_0`, `q4_1`, `q8_0`, `q8_1`, `nf4`, `fp4`, `iq4_nl` or `f16`, with the suffix
`_g16`, `_g64` or `_g128` if the group is not 32 columns.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

PANEL_ROWS = 16
PLAIN_GROUP = 32  # group of a format without a suffix

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

# The 16 values of bitsandbytes' codebooks (NF4: QLoRA, arXiv 2305.14314; FP4: 2 bits of exponent, 1 of mantissa), and
# of GGUF's IQ4_NL.
CODEBOOKS: dict[str, F32] = {
    "nf4": np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
            *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
            *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
            *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
        ],
        np.float32,
    ),
    "fp4": np.array(
        [
            *(0.0, 0.0625, 8.0, 12.0, 4.0, 6.0, 2.0, 3.0),
            *(0.0, -0.0625, -8.0, -12.0, -4.0, -6.0, -2.0, -3.0),
        ],
        np.float32,
    )
    / np.float32(12),
    "iq4_nl": np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32),
}


@dataclass(frozen=True)
class Format:
    """A kind of code, and the number of columns that share a scale."""

    kind: str
    header_bytes: int  # scales, and minima, of a block's 16 rows
    code_bytes: int  # of one column of a block
    group: int = PLAIN_GROUP

    @property
    def scale_dtype(self) -> type[np.float32] | type[np.float16]:
        """Type of scales and minima: float32 for bitsandbytes' codebooks, else float16."""
        return np.float32 if self.kind in ("nf4", "fp4") else np.float16

    @property
    def block_bytes(self) -> int:
        return self.header_bytes + self.group * self.code_bytes


# runtime/formats/format.h has the same table.
_KINDS = (
    Format("q4_0", 32, 8),
    Format("q4_1", 64, 8),
    Format("q8_0", 32, 16),
    Format("q8_1", 64, 16),
    Format("nf4", 64, 8),
    Format("fp4", 64, 8),
    Format("iq4_nl", 32, 8),
)
FORMATS: dict[str, Format] = {"f16": Format("f16", 0, 32)} | {
    kind.kind + suffix: replace(kind, group=group)
    for kind in _KINDS
    for suffix, group in (("", PLAIN_GROUP), ("_g16", 16), ("_g64", 64), ("_g128", 128))
}


def parse_format(name: str) -> Format:
    """Returns the format with this name. Raises ValueError if it is unknown."""
    if name not in FORMATS:
        raise ValueError(f"unknown weight format {name!r}; known: {', '.join(FORMATS)}")
    return FORMATS[name]


@dataclass(frozen=True)
class PackedWeight:
    """One linear layer's weight W [rows, cols] as uint8 [ceil(rows / 16), cols / group, block_bytes]."""

    data: U8
    format: str
    rows: int
    cols: int


def packed_shape(name: str, rows: int, cols: int) -> tuple[int, int, int]:
    """Returns the shape of a packed W [rows, cols]. Raises ValueError if cols is not a multiple of the group."""
    fmt = parse_format(name)
    if cols % fmt.group:
        raise ValueError(f"{cols} columns: a {name} weight requires a multiple of {fmt.group}")
    return -(-rows // PANEL_ROWS), cols // fmt.group, fmt.block_bytes


def pack(name: str, codes: npt.NDArray, header: U8) -> PackedWeight:
    """Packs codes [rows, cols] (uint8; uint16 for f16) and header [rows, groups, bytes of scale and minimum]."""
    fmt = parse_format(name)
    rows, cols = codes.shape
    panels, groups, block = packed_shape(name, rows, cols)
    padding = panels * PANEL_ROWS - rows
    codes, header = (np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1)) for x in (codes, header))
    out = np.empty((panels, groups, block), np.uint8)
    scale_bytes = np.dtype(fmt.scale_dtype).itemsize
    tiles = header.reshape(panels, PANEL_ROWS, groups, -1).transpose(0, 2, 1, 3)  # [panel, group, row, byte]
    for i in range(0, header.shape[-1], scale_bytes):
        part = out[..., i * PANEL_ROWS : (i + scale_bytes) * PANEL_ROWS]
        part[:] = tiles[..., i : i + scale_bytes].reshape(panels, groups, -1)
    columns = codes.reshape(panels, PANEL_ROWS, groups, fmt.group).transpose(0, 2, 3, 1)  # [panel, group, column, row]
    if fmt.code_bytes < PANEL_ROWS:
        columns = columns[..., :8] | (columns[..., 8:] << 4)
    out[..., fmt.header_bytes :] = np.ascontiguousarray(columns).view(np.uint8).reshape(panels, groups, -1)
    return PackedWeight(out, name, rows, cols)


def decode(kind: str, codes: U8, scale: F32, minimum: F32 | None) -> F32:
    """Decodes codes of any kind except f16 to float32 of the same shape. Scale and minimum broadcast to it."""
    if kind == "q4_0":
        levels = codes.astype(np.float32) - 8
    elif kind == "q8_0":
        levels = codes.view(np.int8).astype(np.float32)
    else:
        levels = CODEBOOKS[kind][codes] if kind in CODEBOOKS else codes.astype(np.float32)
    values = scale * levels
    return values if minimum is None else values + minimum


def unpack_codes(data: U8, name: str, rows: int) -> tuple[npt.NDArray, list[F32]]:
    """Returns codes [rows, groups, group], uint8 (f16: uint16), and the scale and minimum if the format has them, each
    float32 [rows, groups]."""
    fmt = parse_format(name)
    panels, groups, _ = data.shape

    def by_row(tiles: npt.NDArray) -> npt.NDArray:
        """Transposes from [panel, group, column, row of the panel]."""
        return tiles.transpose(0, 3, 1, 2).reshape(panels * PANEL_ROWS, groups, -1)[:rows]

    codes = np.ascontiguousarray(data[..., fmt.header_bytes :]).reshape(panels, groups, fmt.group, -1)
    if fmt.kind == "f16":
        codes = codes.view(np.uint16)
    elif fmt.code_bytes < PANEL_ROWS:
        codes = np.concatenate([codes & 15, codes >> 4], axis=-1)
    header = np.ascontiguousarray(data[..., : fmt.header_bytes]).view(fmt.scale_dtype).astype(np.float32)
    parts = by_row(header.reshape(panels, groups, header.shape[-1] // PANEL_ROWS, PANEL_ROWS))
    return by_row(codes), [parts[..., i] for i in range(parts.shape[-1])]


def gguf_blocks(data: U8, kind: str, rows: int) -> U8:
    """Converts a packed q4_0, q4_1, iq4_nl or q8_0 weight to rows of GGUF blocks: uint8 [rows, bytes]."""
    codes, header = unpack_codes(data, kind, rows)
    if kind != "q8_0":  # byte i holds column i (low nibble) and column i + 16 (high nibble)
        codes = codes[..., :16] | codes[..., 16:] << 4
    halves = np.stack(header, axis=-1).astype(np.float16).view(np.uint8)
    return np.ascontiguousarray(np.concatenate([halves, codes], axis=-1)).reshape(rows, -1)


def unpack(data: U8, name: str, rows: int) -> F32:
    """Decodes a packed weight to dense float32 [rows, cols]: the reference for kernels and tests."""
    fmt = parse_format(name)
    codes, header = unpack_codes(data, name, rows)
    if fmt.kind == "f16":
        values: F32 = np.ascontiguousarray(codes).view(np.float16).astype(np.float32)
    else:
        minimum = header[1][..., None] if len(header) == 2 else None
        values = decode(fmt.kind, codes, header[0][..., None], minimum)
    return values.reshape(rows, -1)
