"""What 4-bit weights cost in perplexity, by format and quantizer: `bench_quality.py TEXT [TOKENS]`.

SmolLM2's weights as published lie on the grid of Q4_1. They are moved off it without changing the function in float32:
norms are folded into the linears behind them, and the channels between v and o and between up and down are rescaled by
random factors. Every quantizer then gets the same tensors; embedding and head stay as they are. Beside ours stand
bitsandbytes, and llama.cpp's own code where llama-cpp-python is installed.
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
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig

from mobile_ft.export.gguf_model import GgufModel, builtin_model
from mobile_ft.formats import F32, FORMATS, PANEL_ROWS, unpack
from mobile_ft.runtime import quantize

ROW = 512  # tokens
OURS = ("q4_1", "nf4", "iq4_nl", "q4_0", "nf4_g64", "q4_1_g64", "q4_0_g64", "fp4_g64")  # 128 divides no row
LLAMA_CPP = ("Q4_1", "Q4_0", "IQ4_NL")  # nor do the 256 columns of a K-quant

Quantizer = Callable[[F32], F32]  # what the weights are once quantized


def float_model(folder: Path) -> Any:
    """SmolLM2 in float32 as Transformers has it; its tokenizer goes into `folder`."""
    path = builtin_model("smollm2-135m")
    assert path is not None
    source = GgufModel(path)
    c = source.config
    config = LlamaConfig(
        hidden_size=c.hidden_size,
        intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_hidden_layers,
        num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads,
        vocab_size=c.vocab_size,
        rms_norm_eps=c.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
        max_position_embeddings=c.max_position_embeddings,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.copy_(torch.from_numpy(source.vector(name, len(parameter))))
        else:
            weight = source.packed(name, parameter.shape[1], parameter.shape[0])
            parameter.copy_(torch.from_numpy(unpack(weight.data, weight.format, weight.rows)))
    source.write_tokenizer(folder)
    return model


def move_off_the_grid(model: Any) -> None:
    """Other weights, the same function."""
    generator = torch.Generator().manual_seed(0)
    config = model.config
    dim = config.hidden_size // config.num_attention_heads
    for layer in model.model.layers:
        attn, mlp = layer.self_attn, layer.mlp
        for norm, linears in (
            (layer.input_layernorm, (attn.q_proj, attn.k_proj, attn.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            for linear in linears:
                linear.weight.mul_(norm.weight)
            norm.weight.fill_(1.0)
        values = torch.rand(len(attn.v_proj.weight), generator=generator) + 0.5
        attn.v_proj.weight.mul_(values[:, None])
        group = config.num_attention_heads // config.num_key_value_heads
        attn.o_proj.weight.div_(values.view(-1, 1, dim).expand(-1, group, dim).reshape(-1))
        inner = torch.rand(config.intermediate_size, generator=generator) + 0.5
        mlp.up_proj.weight.mul_(inner[:, None])
        mlp.down_proj.weight.div_(inner)


def perplexity(model: Any, tokens: torch.Tensor) -> float:
    """Of rows of ROW tokens, each by itself."""
    total = 0.0
    with torch.inference_mode():
        for row in tokens.view(-1, ROW):
            logits = model(row[None]).logits[0, :-1]
            total += torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum").item()
    return math.exp(total / (tokens.numel() - tokens.numel() // ROW))


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
    """ggml's quantizer through the library that llama-cpp-python brings."""
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
    """(name, bits a weight, quantizer)."""
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
    parser.add_argument("tokens", type=int, nargs="?", default=32 * ROW)
    parser.add_argument("--folder", type=Path, default=Path("build"), help="for the tokenizer (default: build)")
    args = parser.parse_args()
    model = float_model(args.folder)
    ids = Tokenizer.from_file(str(args.folder / "tokenizer.json")).encode(args.text.read_text()[: 8 * args.tokens]).ids
    tokens = torch.tensor(ids[: args.tokens // ROW * ROW])
    with torch.inference_mode():
        before = model(tokens[None, :ROW]).logits
        move_off_the_grid(model)
        moved = (model(tokens[None, :ROW]).logits - before).abs().max().item()
    Console().print(f"largest change of a logit by moving the weights: {moved:.1e}")
    linears = {name: x.weight for name, x in model.model.named_modules() if isinstance(x, torch.nn.Linear)}
    originals = {name: weight.clone() for name, weight in linears.items()}
    table = Table("quantizer", "bits a weight", "relative RMS error", "perplexity")
    rows = [("float32", 32.0, 0.0, perplexity(model, tokens))]
    for name, bits, quantizer in track(list(quantizers()), description="quantizers"):
        squares = errors = 0.0
        for key, weight in linears.items():
            new = quantizer(originals[key].numpy())
            errors += float(((new - originals[key].numpy()) ** 2).sum())
            squares += float(originals[key].square().sum())
            weight.copy_(torch.from_numpy(new))
        rows.append((name, bits, math.sqrt(errors / squares), perplexity(model, tokens)))
        Console().print(f"{name}: {rows[-1][-1]:.3f}")
    for name, bits, error, value in sorted(rows, key=lambda row: row[-1]):
        table.add_row(name, f"{bits:g}", f"{error:.4f}", f"{value:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
