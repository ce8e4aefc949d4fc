"""A Hugging Face folder: config.json, NUL, the index of shards or nothing, NUL, model.safetensors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fuzz.python.fuzz_hf_config import seeds as configs
from mobile_ft.export.source.hf_folder import HfFolder

_SHAPE = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 16, "num_hidden_layers": 1, "head_dim": 16}
_SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2}
_TOO_LARGE = ("layer_types", "full_attn_idxs", "no_rope_layers", "block_ff_dim")
LINEAR = "model.layers.0.mlp.up_proj.weight"


def _small(config: dict[str, Any]) -> dict[str, Any]:
    own = {"query_pre_attn_scalar": _SHAPE["head_dim"], "block_auto_adjust_ff_dim": False}
    rest = {key: value for key, value in config.items() if key not in _TOO_LARGE}
    return rest | _SHAPE | {key: value for key, value in own.items() if key in config}


def seeds() -> list[bytes]:
    tensors: dict[str, np.ndarray] = {"model.embed_tokens.weight": np.ones((16, 32), np.float16)}
    tensors["model.norm.weight"] = np.ones(32, np.float32)
    index = json.dumps({"weight_map": {name: "model.safetensors" for name in [*tensors, LINEAR]}}).encode()
    weights = save(tensors | {LINEAR: np.ones((32, 32), np.float32)})
    shapes = [json.dumps(_small(json.loads(config))).encode() for config in configs() if b"text_config" not in config]
    return [b"\0".join((config, part, weights)) for config in shapes for part in (b"", index)]


def run(data: bytes, folder: Path) -> None:
    parts = (data.split(b"\0", 2) + [b"", b""])[:3]
    for name, part in zip(("config.json", "model.safetensors.index.json", "model.safetensors"), parts, strict=True):
        (folder / name).unlink(missing_ok=True)
        if part:
            (folder / name).write_bytes(part)
    source = HfFolder(folder, "q4_1", "q8_0")
    source.packed("model.embed_tokens.weight", source.config.hidden_size, source.config.vocab_size)
    source.vector("model.norm.weight", source.config.hidden_size)
    config = source.config
    if config.num_experts:
        rows = 2 * config.num_experts * config.moe_intermediate_size
        source.packed(f"model.layers.0.{config.family.linears['experts_in']}.weight", config.hidden_size, rows)
    else:
        source.packed(LINEAR, config.hidden_size, config.intermediate_size)
