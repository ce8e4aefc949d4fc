"""A Hugging Face folder: config.json, NUL, the index of shards or nothing, NUL, model.safetensors."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from fuzz.python.fuzz_hf_config import seeds as configs
from mobile_ft.export.hf_folder import HfFolder

_SHAPE = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 16, "num_hidden_layers": 1, "head_dim": 16}
_SHAPE |= {"num_attention_heads": 2, "num_key_value_heads": 2, "query_pre_attn_scalar": 16}
LINEAR = "model.layers.0.mlp.up_proj.weight"


def seeds() -> list[bytes]:
    tensors = {"model.embed_tokens.weight": np.ones((16, 32), np.float16), "model.norm.weight": np.ones(32, np.float32)}
    index = json.dumps({"weight_map": {name: "model.safetensors" for name in [*tensors, LINEAR]}}).encode()
    weights = save(tensors | {LINEAR: np.ones((32, 32), np.float32)})
    shapes = [json.dumps(json.loads(config) | _SHAPE).encode() for config in configs() if b"text_config" not in config]
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
    source.packed(LINEAR, source.config.hidden_size, source.config.intermediate_size)
