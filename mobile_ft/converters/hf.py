"""`--to hf`: the merged model as a Hugging Face folder, in float16 or with linear layers in bitsandbytes' NF4."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_ft.converters import hf_nf4, tokenizer_files
from mobile_ft.converters.fine_tuned import HEAD, FineTuned, warn_of_the_same_grid
from mobile_ft.converters.safetensors_file import TensorInfo, write_safetensors
from mobile_ft.errors import UserError
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import F32
from mobile_ft.model.rope import frequencies
from mobile_ft.model.shapes import PER_LAYER_TABLE

_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
FILES = ("config.json", _WHOLE, _INDEX, "model-?????-of-?????.safetensors", *tokenizer_files.FILES)

_MOST_BYTES = 5_000_000_000  # maximum of a file, as in save_pretrained
_DTYPE = "float16"

_Weights = dict[str, dict[str, TensorInfo]]  # weight -> its tensors in the file

# Transformers' class for the text model alone.
_CLASSES = {
    "arcee": "ArceeForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "granite": "GraniteForCausalLM",
    "granite_swa": "GraniteSWAForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "helium": "HeliumForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "iquestcoder": "IQuestCoderForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "lfm3": "Lfm3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral": "MinistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "vaultgemma": "VaultGemmaForCausalLM",
}


def write(model: FineTuned, out: Path, quant: str) -> None:
    """Writes FILES into the folder `out`, tensor by tensor. `quant` is f16, or nf4 for linear layers."""
    model.check()
    config = hf_config(model)
    if quant == "nf4":
        if model.config.num_experts:
            raise UserError("to hf: quant nf4 does not support models with experts; use f16")
        warn_of_the_same_grid(model, hf_nf4.FORMAT)
        config["quantization_config"] = hf_nf4.quantization_config(_DTYPE)
    files = _split({name: _infos(model, name, quant) for name in model.shapes})
    tokenizer = tokenizer_files.write_tokenizer_files(model.bundle, out)
    if tokenizer is not None:
        config |= tokenizer_files.special_ids(tokenizer)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for file, weights in files.items():
        tensors = {name: info for infos in weights.values() for name, info in infos.items()}
        write_safetensors(out / file, tensors, _arrays(model, list(weights), quant))
    if len(files) > 1:
        index = {
            "metadata": {"total_size": sum(_size(infos) for weights in files.values() for infos in weights.values())},
            "weight_map": {x: file for file, weights in files.items() for infos in weights.values() for x in infos},
        }
        (out / _INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def hf_config(model: FineTuned) -> dict[str, Any]:
    """Returns config.json like that of the family's published models. Raises UserError if it cannot represent the
    model."""
    c = model.config
    if c.model_type not in _CLASSES:
        raise UserError(f"to hf: does not support model_type {c.model_type}; supported: {', '.join(_CLASSES)}")
    settings = model.bundle.hf_settings
    if settings is None:
        raise UserError(f"to hf: {model.bundle.folder} was written by an earlier version; export the model again")
    found = model.full_inv_freq()
    if found is not None and not _same(frequencies(_full_head_dim(c), c.rope_theta, c.rope_scaling), found):
        settings = settings | {"rope_parameters": {"rope_theta": c.rope_theta} | _llama3_scaling(model, found)}
        settings = {key: value for key, value in settings.items() if key not in ("rope_scaling", "rope_theta")}
    # Transformers' default id for padding may be beyond the vocabulary.
    written = {"architectures": [_CLASSES[c.model_type]], "_name_or_path": c.name, "dtype": _DTYPE}
    return written | {"pad_token_id": None} | settings


def _full_head_dim(c: ModelConfig) -> int:
    return c.global_head_dim or c.head_dim


def _same(ours: F32, found: F32) -> bool:
    return np.allclose(ours, found, rtol=1e-5, atol=0)


def _llama3_scaling(model: FineTuned, found: F32) -> dict[str, Any]:
    """Returns the scaling of Llama 3.1 and later that gives the bundle's rotary frequencies. A GGUF file has the
    frequencies but not the scaling."""
    c = model.config
    plain = frequencies(_full_head_dim(c), c.rope_theta, None)
    scaling = {
        "rope_type": "llama3",
        "factor": float(np.round((plain / found).max(), 3)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    if _same(frequencies(_full_head_dim(c), c.rope_theta, scaling), found):
        return scaling
    raise UserError(f"{model.bundle.folder}: config.json cannot represent its rotary frequencies; use another target")


def _quantized(c: ModelConfig, name: str, shape: tuple[int, ...], quant: str) -> bool:
    return quant == "nf4" and len(shape) == 2 and name not in (c.embedding, HEAD, PER_LAYER_TABLE)


def _infos(model: FineTuned, name: str, quant: str) -> dict[str, TensorInfo]:
    """Returns the tensors of a weight in the file."""
    shape, family = model.hf_shape(name), model.config.family
    if _quantized(model.config, name, shape, quant):
        return hf_nf4.infos(name, shape, _DTYPE)
    module = name.removesuffix(".weight").split(".", 3)[-1]
    if module in family.expert_files:
        return {x: TensorInfo(_DTYPE, s) for x, s in _expert_shapes(model.config, name, module, shape).items()}
    if name.endswith(f".{family.expert_bias}"):
        return {name: TensorInfo("float32", shape)}
    if module == family.linears.get("router"):
        name = name.replace(module, family.in_files.get(module, module))
    return {name: TensorInfo(_DTYPE, shape)}


def _expert_shapes(c: ModelConfig, name: str, module: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Returns {name in files: shape} of the experts' matrix [experts x rows, columns], in its order."""
    parts, (rows, columns) = c.family.expert_files[module], shape
    layer = name.removesuffix(f".{module}.weight")
    if "{}" not in parts[0]:
        return {f"{layer}.{parts[0]}.weight": (c.num_experts, rows // c.num_experts, columns)}
    size = rows // (c.num_experts * len(parts))
    return {f"{layer}.{part.format(e)}.weight": (size, columns) for e in range(c.num_experts) for part in parts}


def _arrays(model: FineTuned, weights: list[str], quant: str) -> Iterator[npt.NDArray]:
    for name in weights:
        if _quantized(model.config, name, model.shapes[name], quant):
            yield from hf_nf4.arrays(model, name, _DTYPE)
        else:
            infos = _infos(model, name, quant)
            tensor = model.hf_tensor(name, next(iter(infos.values())).dtype)
            parts = np.split(tensor.reshape(-1), len(infos))
            yield from (part.reshape(info.shape) for part, info in zip(parts, infos.values(), strict=True))


def _split(weights: _Weights) -> dict[str, _Weights]:
    """Returns {file: its weights}, with as few files as possible of at most 5 GB, or of one larger weight."""
    parts: list[_Weights] = [{}]
    left = _MOST_BYTES
    for name, infos in weights.items():
        if parts[-1] and _size(infos) > left:
            parts.append({})
            left = _MOST_BYTES
        parts[-1][name] = infos
        left -= _size(infos)
    if len(parts) == 1:
        return {_WHOLE: parts[0]}
    return {f"model-{i:05}-of-{len(parts):05}.safetensors": part for i, part in enumerate(parts, 1)}


def _size(infos: dict[str, TensorInfo]) -> int:
    return sum(info.size for info in infos.values())
