"""Measures error and speed of quantization: `bench_quantize.py`.

Compares each of our formats with a common reference: the rounding of the gguf package, or for codebooks that of the
absolute maximum.
"""

import time

import gguf
import numpy as np
from rich.console import Console
from rich.table import Table

from mobile_ft.model.formats import CODEBOOKS, F32, FORMATS, PANEL_ROWS, unpack
from mobile_ft.runtime import quantize

ROWS, COLS = 1024, 1536


def reference(weight: F32, name: str) -> F32 | None:
    """Returns the weights as rounded by the reference, or None if it does not support the group."""
    fmt = FORMATS[name]
    if fmt.kind in CODEBOOKS:
        groups, values = weight.reshape(-1, fmt.group), CODEBOOKS[fmt.kind]
        scale = np.abs(groups).max(-1, keepdims=True) / np.abs(values).max()
        nearest = np.abs((groups / scale)[..., None] - values).argmin(-1)
        return (values[nearest] * scale).reshape(weight.shape)
    if name not in ("q4_0", "q4_1", "q8_0", "f16"):
        return None
    kind = gguf.GGMLQuantizationType[name.upper()]
    return gguf.dequantize(gguf.quantize(weight, kind), kind)


def main() -> None:
    weight = (0.02 * np.random.default_rng(0).standard_t(5, (ROWS, COLS))).astype(np.float32)
    table = Table("format", "bits per weight", "relative RMS error", "reference's", "million weights/s")

    def error(values: F32) -> str:
        return f"{np.sqrt(((values - weight) ** 2).mean()) / weight.std():.4f}"

    for name, fmt in FORMATS.items():
        start = time.perf_counter()
        packed = quantize(weight, name)
        rate = weight.size / (time.perf_counter() - start) / 1e6
        expected = reference(weight, name)
        bits = 8 * fmt.block_bytes / (PANEL_ROWS * fmt.group)
        theirs = "" if expected is None else error(expected)
        table.add_row(name, f"{bits:g}", error(unpack(packed, name, ROWS)), theirs, f"{rate:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
