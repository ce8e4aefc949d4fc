"""Tiny Llamas as mlx-lm, GPTQModel and AutoAWQ write them, packed code by code as these formats are documented.

Each function writes a folder, and gives the Transformers model whose weights are what the folder stands for.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from tests.hf_models import random_model

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def llama(tie: bool = True) -> Any:
    """Its embedding and norms are numbers of bfloat16."""
    model = random_model(
        LlamaConfig(
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=250,
            max_position_embeddings=512,
            tie_word_embeddings=tie,
        )
    )
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model


def pack_words(codes: np.ndarray, bits: int) -> np.ndarray:
    """[n, m] to int32 [n, m * bits / 32], the lowest bits first."""
    words = np.zeros((len(codes), codes.shape[1] * bits // 32), np.uint32)
    for column in range(codes.shape[1]):
        words[:, column * bits // 32] |= codes[:, column].astype(np.uint32) << np.uint32(column * bits % 32)
    return words.view(np.int32)


def _pack_awq(codes: np.ndarray) -> np.ndarray:
    """[n, m] to int32 [n, m / 8]."""
    words = np.zeros((len(codes), codes.shape[1] // 8), np.uint32)
    for word in range(words.shape[1]):
        for place, column in enumerate(_AWQ_ORDER):
            words[:, word] |= codes[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)


def _draw(
    weight: torch.Tensor, bits: int, group: int, dtype: torch.dtype, seed: int
) -> tuple[np.ndarray, torch.Tensor]:
    """Codes [rows, cols], and scales [rows, groups] of `dtype` that give weights of about the same size."""
    rng, (rows, cols) = np.random.default_rng(seed), weight.shape
    codes = rng.integers(0, 1 << bits, (rows, cols), dtype=np.uint8)
    scales = torch.from_numpy(rng.uniform(0.5, 1, (rows, -(-cols // group))) / (1 << bits))
    return codes, scales.to(dtype)


def _of_groups(x: Any, group: int, cols: int) -> np.ndarray:
    """[rows, groups] to float64 [rows, cols]."""
    return np.repeat(np.asarray(torch.as_tensor(x).double()), group, axis=1)[:, :cols]


def _write(folder: Path, model: Any, tensors: dict[str, torch.Tensor], **quantization: Any) -> None:
    """What is not quantized lies beside it in bfloat16."""
    folder.mkdir(exist_ok=True)
    quantized = {f"{name.removesuffix('.scales')}.weight" for name in tensors if name.endswith(".scales")}
    plain = {name: x.bfloat16() for name, x in model.state_dict().items() if name not in quantized}
    if model.config.tie_word_embeddings:
        plain.pop("lm_head.weight")
    model.config.to_json_file(folder / "config.json")
    config = json.loads((folder / "config.json").read_text()) | quantization
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: x.contiguous() for name, x in (plain | tensors).items()}, folder / "model.safetensors")


def _linears(model: Any, kinds: tuple) -> dict[str, Any]:
    return {name: x for name, x in model.named_modules() if isinstance(x, kinds) and name != "lm_head"}


def write_mlx(
    folder: Path,
    bits: int = 4,
    group: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
) -> Any:
    """The embedding is quantized too, in groups of 32. `change` is made to scales and biases."""
    model, tensors, settings = llama(), {}, {"group_size": group, "bits": bits, "mode": "affine"}
    settings["model.embed_tokens"] = own = {"group_size": 32, "bits": bits}
    for seed, (name, module) in enumerate(_linears(model, (torch.nn.Linear, torch.nn.Embedding)).items()):
        width = own["group_size"] if "embed" in name else group
        codes, scales = _draw(module.weight, bits, width, dtype, seed)
        biases = (scales.double() * -((1 << bits) - 1) / 2).to(dtype)
        scales, biases = change(scales), change(biases)
        tensors[f"{name}.weight"] = torch.from_numpy(pack_words(codes, bits).view(np.uint32))
        tensors |= {f"{name}.scales": scales, f"{name}.biases": biases}
        cols = codes.shape[1]
        weight = _of_groups(scales, width, cols) * codes + _of_groups(biases, width, cols)
        module.weight.data = torch.from_numpy(weight)
    _write(folder, model, tensors, quantization=settings, quantization_config=settings)
    return model


def write_gptq(
    folder: Path,
    bits: int = 4,
    group: int = 64,
    sym: bool = True,
    version: str = "gptq",
    dtype: torch.dtype = torch.float16,
    few_bits: bool = False,
    **settings: Any,
) -> Any:
    """`few_bits`: scales are multiples of 2^-11, so that float16 holds their products with zero points."""
    model, tensors = llama(tie=False), {}
    for seed, (name, module) in enumerate(_linears(model, (torch.nn.Linear,)).items()):
        rows, cols = module.weight.shape
        width = cols if group == -1 else group
        codes, scales = _draw(module.weight, bits, width, dtype, seed)
        scales = torch.round(scales * 2048) / 2048 if few_bits else scales
        zeros = np.full(scales.shape, 1 << (bits - 1), np.uint8)
        if not sym:
            zeros = np.random.default_rng(seed).integers(1, 1 << bits, zeros.shape, dtype=np.uint8)
        tensors[f"{name}.qweight"] = torch.from_numpy(pack_words(codes, bits).T.copy())
        tensors[f"{name}.qzeros"] = torch.from_numpy(pack_words(zeros.T - np.uint8(version == "gptq"), bits))
        tensors[f"{name}.scales"] = scales.T
        tensors[f"{name}.g_idx"] = torch.arange(cols, dtype=torch.int32) // width
        weight = _of_groups(scales, width, cols) * (codes - _of_groups(zeros, width, cols))
        module.weight.data = torch.from_numpy(weight)
    quantization = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": False}
    quantization |= {"checkpoint_format": version} | settings
    _write(folder, model, tensors, quantization_config=quantization)
    return model


def write_awq(folder: Path, group: int = 64, few_bits: bool = False, **settings: Any) -> Any:
    model, tensors = llama(tie=False), {}
    for seed, (name, module) in enumerate(_linears(model, (torch.nn.Linear,)).items()):
        cols = module.weight.shape[1]
        width = cols if group == -1 else group
        codes, scales = _draw(module.weight, 4, width, torch.float16, seed)
        scales = torch.round(scales * 2048) / 2048 if few_bits else scales
        zeros = np.random.default_rng(seed).integers(0, 16, scales.shape, dtype=np.uint8)
        tensors[f"{name}.qweight"] = torch.from_numpy(_pack_awq(codes.T))
        tensors[f"{name}.qzeros"] = torch.from_numpy(_pack_awq(zeros.T))
        tensors[f"{name}.scales"] = scales.T
        weight = _of_groups(scales, width, cols) * (codes - _of_groups(zeros, width, cols))
        module.weight.data = torch.from_numpy(weight)
    quantization = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    _write(folder, model, tensors, quantization_config=quantization | settings)
    return model


def decoded(source: HfFolder, name: str, like: torch.Tensor) -> np.ndarray:
    """What a weight of the source is once packed."""
    rows, cols = like.shape
    return unpack(source.packed(name, cols, rows).data, source.format_of(name), rows)
