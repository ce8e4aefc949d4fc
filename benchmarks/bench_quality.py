"""Measures the perplexity of 4-bit weights by format and quantizer: `bench_quality.py TEXT [TOKENS]`.

Every quantizer gets the same tensors: SmolLM2's, moved off the grid of Q4_1 (`off_grid.py`) with DRAWS sets of random
factors. Embedding and head are not changed. Our quantizers are compared with bitsandbytes and, if llama-cpp-python is
installed, with llama.cpp's own code. KL is the mean divergence of the next token's distribution from the float model's.
"""

import argparse
import ctypes
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch
from off_grid import float_model, move_off_the_grid
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer

from mobile_ft.model.formats import F32, FORMATS, PANEL_ROWS, unpack
from mobile_ft.runtime import quantize

ROW = 512  # tokens
DRAWS = 3
OURS = (
    "q4_1",
    "nf4",
    "iq4_nl",
    "q4_0",
    "nf4_g64",
    "iq4_nl_g64",
    "q4_1_g64",
    "q4_0_g64",
    "fp4_g64",
)  # 128 divides no row
LLAMA_CPP = ("Q4_1", "Q4_0", "IQ4_NL")  # nor do the 256 columns of a K-quant

Quantizer = Callable[[F32], F32]  # weights -> quantized weights


def log_probabilities(model: Any, tokens: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the log probabilities of each row's next tokens, for rows of ROW tokens."""
    for row in tokens.view(-1, ROW):
        yield torch.log_softmax(model(row[None]).logits[0, :-1], -1)


def quality(model: Any, tokens: torch.Tensor, expected: list[torch.Tensor]) -> tuple[float, float]:
    """Returns the perplexity, and the KL divergence from the expected log probabilities."""
    loss = divergence = 0.0
    for row, wanted, found in zip(tokens.view(-1, ROW), expected, log_probabilities(model, tokens), strict=True):
        loss += torch.nn.functional.nll_loss(found, row[1:]).item() / len(expected)
        divergence += (wanted.exp() * (wanted - found)).sum(-1).mean().item() / len(expected)
    return math.exp(loss), divergence


def ours(name: str) -> Quantizer:
    return lambda weight: unpack(quantize(weight, name), name, len(weight))


def bitsandbytes(kind: str, double: bool) -> Quantizer:
    def quantized(weight: F32) -> F32:
        packed, state = bnb.quantize_4bit(
            torch.from_numpy(weight), blocksize=64, quant_type=kind, compress_statistics=double
        )
        return np.asarray(bnb.dequantize_4bit(packed, state).numpy())

    return quantized


def llama_cpp(name: str) -> Quantizer:
    """Calls ggml's quantizer in the library of llama-cpp-python."""
    spec = find_spec("llama_cpp")
    assert spec is not None and spec.origin is not None
    library = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "libggml-base.so"))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    kind = gguf.GGMLQuantizationType[name]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]

    def quantized(weight: F32) -> F32:
        rows, cols = weight.shape
        out = np.empty((rows, cols // block * block_bytes), np.uint8)
        pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (weight, out))
        sizes = (ctypes.c_int64(n) for n in (0, rows, cols))
        library.ggml_quantize_chunk(ctypes.c_int(kind), *pointers, *sizes, None)
        return gguf.dequantize(out, kind)

    return quantized


def quantizers() -> Iterator[tuple[str, float, Quantizer]]:
    """Yields (name, bits per weight, quantizer)."""
    for name in OURS:
        fmt = FORMATS[name]
        yield f"ours, {name}", 8 * fmt.block_bytes / (PANEL_ROWS * fmt.group), ours(name)
    yield "bitsandbytes, nf4", 4.5, bitsandbytes("nf4", False)
    yield "bitsandbytes, nf4, double", 4.127, bitsandbytes("nf4", True)
    yield "bitsandbytes, fp4", 4.5, bitsandbytes("fp4", False)
    if find_spec("llama_cpp") is not None:
        for name in LLAMA_CPP:
            block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
            yield f"llama.cpp, {name}", 8 * block_bytes / block, llama_cpp(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("tokens", type=int, nargs="?", default=8 * ROW)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="folder for the tokenizer (default: build)")
    args = parser.parse_args()
    results: dict[str, list[tuple[float, ...]]] = {}
    bits = {"float32": 32.0} | {name: bits for name, bits, _ in quantizers()}
    with torch.inference_mode():
        for draw in track(range(DRAWS), description="draws"):
            for name, row in measure(args.folder, args.text, args.tokens, draw):
                results.setdefault(name, []).append(row)
                Console().print(name, *row)
    means = {name: np.mean(rows, axis=0) for name, rows in results.items()}
    table = Table("quantizer", "bits per weight", "relative RMS error", "perplexity", "KL", "perplexity of each draw")
    for name, (error, value, divergence) in sorted(means.items(), key=lambda item: item[1][1]):
        each = ", ".join(f"{row[1]:.2f}" for row in results[name])
        table.add_row(name, f"{bits[name]:g}", f"{error:.4f}", f"{value:.2f}", f"{divergence:.4f}", each)
    Console(width=120).print(table)


def measure(folder: Path, text: Path, count: int, draw: int) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yields the relative RMS error, the perplexity and the KL of every quantizer."""
    model = float_model(folder)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.read_text()[: 8 * count]).ids
    tokens = torch.tensor(ids[: count // ROW * ROW])
    before = model(tokens[None, :ROW]).logits
    move_off_the_grid(model, draw)
    moved = (model(tokens[None, :ROW]).logits - before).abs().max().item()
    Console().print(f"largest change of a logit by moving the weights: {moved:.1e}")
    expected = list(log_probabilities(model, tokens))
    yield "float32", (0.0, *quality(model, tokens, expected))
    linears = {name: x.weight for name, x in model.model.named_modules() if isinstance(x, torch.nn.Linear)}
    originals = {name: weight.clone() for name, weight in linears.items()}
    for name, _, quantizer in quantizers():
        squares = errors = 0.0
        for key, weight in linears.items():
            new = quantizer(originals[key].numpy())
            errors += float(((new - originals[key].numpy()) ** 2).sum())
            squares += float(originals[key].square().sum())
            weight.copy_(torch.from_numpy(new))
        yield name, (math.sqrt(errors / squares), *quality(model, tokens, expected))


if __name__ == "__main__":
    main()
