"""An adapter to start from, of PEFT or mlx-lm: adapter_config.json, NUL, parts of the tensors' file."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from fuzz.python.safetensors_parts import put_together, take_apart
from mobile_ft.export.adapter import read_adapter
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora import BaseModel, LoraConfig, peft_config

_MODEL = ModelConfig(
    name="tiny",
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=16,
    vocab_size=16,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=64,
    tie_word_embeddings=True,
)
_LINEAR = "model.layers.0.self_attn.q_proj.lora"
_MLX = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": {"rank": 2, "scale": 20.0, "dropout": 0.0}}


def seeds() -> list[bytes]:
    a, b = np.ones((2, 32), np.float32), np.ones((32, 2), np.float16)
    peft: dict[str, np.ndarray] = {f"base_model.model.{_LINEAR}_A.weight": a, f"base_model.model.{_LINEAR}_B.weight": b}
    config = peft_config(LoraConfig(2, 4.0, ("q_proj",)), BaseModel("tiny")) | {"use_dora": False, "rank_pattern": {}}
    mlx: dict[str, np.ndarray] = {f"{_LINEAR}_a": a.T.copy(), f"{_LINEAR}_b": b.T.copy()}
    return [json.dumps(values).encode() + b"\0" + take_apart(save(x)) for values, x in ((config, peft), (_MLX, mlx))]


def run(data: bytes, folder: Path) -> None:
    config, _, parts = data.partition(b"\0")
    (folder / "adapter_config.json").write_bytes(config)
    for name in ("adapter_model.safetensors", "adapters.safetensors"):
        (folder / name).write_bytes(put_together(parts))
    read_adapter(folder, _MODEL)
