"""A PEFT adapter, through `mobile-ft convert`: adapter_config.json, NUL, adapter_model.safetensors."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from fuzz.python.fuzz_bundle_json import description
from mobile_ft.api.convert import convert
from mobile_ft.model.lora import BaseModel, LoraConfig, peft_config

_TENSORS = save({"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": np.zeros((2, 32), np.float32)})


def seeds() -> list[bytes]:
    config = json.dumps(peft_config(LoraConfig(2, 4.0, ("q_proj",)), BaseModel("tiny"))).encode()
    return [config + b"\0" + _TENSORS, config + b"\0" + save({"a": np.zeros(1, np.float16)})]


def run(data: bytes, folder: Path) -> None:
    for name in ("bundle", "adapter"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "bundle" / "bundle.json").write_text(json.dumps(description()))
    (folder / "bundle" / "adapter_model.safetensors").write_bytes(_TENSORS)
    config, _, tensors = data.partition(b"\0")
    (folder / "adapter" / "adapter_config.json").write_bytes(config)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(tensors)
    convert(folder / "bundle", folder / "adapter", folder / "out")
