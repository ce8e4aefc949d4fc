"""A Hugging Face folder that bitsandbytes, MLX, GPTQ or AWQ quantized: config.json, NUL, parts of model.safetensors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fuzz.python import fuzz_hf_folder
from fuzz.python.fuzz_hf_folder import LINEAR
from fuzz.python.safetensors_parts import put_together, take_apart
from mobile_ft.model.formats import CODEBOOKS

_CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "vocab_size": 16, "num_hidden_layers": 1}
_CONFIG |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True}
_EMBEDDING, _NORM = "model.embed_tokens", "model.norm.weight"
_MODULE = LINEAR.removesuffix(".weight")
_SWITCH = "model.layers.0.mlp.switch_mlp"
_EXPERTS = {"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}


def seeds() -> list[bytes]:
    ones = np.ones((1, 32), np.float16)
    plain: dict[str, np.ndarray] = {f"{_EMBEDDING}.weight": np.ones((16, 32), np.float16)}
    bitsandbytes = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}
    awq = {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "gemm"}
    mlx = {"group_size": 32, "bits": 4, _MODULE: {"group_size": 32, "bits": 8}}
    packed: dict[str, np.ndarray] = {
        f"{_MODULE}.scales": ones,
        f"{_MODULE}.qzeros": np.full((1, 4), 0x77777777, np.int32),
    }
    of_gptq: dict[str, np.ndarray] = {
        f"{_MODULE}.qweight": np.ones((4, 32), np.int32),
        f"{_MODULE}.g_idx": np.zeros(32, np.int32),
    }
    return [
        _seed(plain | _bitsandbytes(False), quantization_config=bitsandbytes),
        _seed(plain | _bitsandbytes(True), quantization_config=bitsandbytes),
        _seed(plain | packed | of_gptq, quantization_config=gptq),
        _seed(plain | packed | {f"{_MODULE}.qweight": np.ones((32, 4), np.int32)}, quantization_config=awq),
        _seed(_mlx(_EMBEDDING, 16, 4) | _mlx(_MODULE, 32, 8), quantization=mlx),
        _seed(_mlx(_EMBEDDING, 16, 4) | _mlx_experts(), quantization=mlx, **_EXPERTS),
    ]


def run(data: bytes, folder: Path) -> None:
    config, _, parts = data.partition(b"\0")
    fuzz_hf_folder.run(b"\0".join((config, b"", put_together(parts))), folder)


def _seed(tensors: dict[str, np.ndarray], **settings: Any) -> bytes:
    weights = save(tensors | {_NORM: np.ones(32, np.float32)})
    return json.dumps(_CONFIG | settings).encode() + b"\0" + take_apart(weights)


def _bitsandbytes(double: bool) -> dict[str, np.ndarray]:
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [32, 32]}
    tensors: dict[str, np.ndarray] = {"": np.ones((512, 1), np.uint8), ".quant_map": CODEBOOKS["nf4"]}
    if double:
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}
        tensors |= {".absmax": np.ones(16, np.uint8), ".nested_absmax": np.ones(1, np.float32)}
        tensors[".nested_quant_map"] = np.ones(256, np.float32)
    else:
        tensors[".absmax"] = np.ones(16, np.float32)
    tensors[".quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return {f"{LINEAR}{suffix}": tensor for suffix, tensor in tensors.items()}


def _mlx_experts() -> dict[str, np.ndarray]:
    matrices = {name: _mlx(f"{_SWITCH}.{name}", 2 * 32, 4) for name in ("gate_proj", "up_proj", "down_proj")}
    return {name: x.reshape(2, 32, -1) for tensors in matrices.values() for name, x in tensors.items()}


def _mlx(module: str, rows: int, bits: int) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {
        f"{module}.{part}": np.ones((rows, 1), np.float16) for part in ("scales", "biases")
    }
    return tensors | {f"{module}.weight": np.ones((rows, bits), np.uint32)}
