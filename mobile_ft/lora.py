"""LoRA adapters in PEFT's file format: `adapter_model.safetensors` and `adapter_config.json`."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from mobile_ft.config import ModelConfig
from mobile_ft.errors import UserError
from mobile_ft.shapes import linear_names

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
MOST_RANK = 256


@dataclass(frozen=True)
class LoraConfig:
    """y = x W^T + scale * (x A^T) B^T on the linears named by `targets` (arXiv 2106.09685).

    The scale is alpha / rank, or alpha / sqrt(rank) with rsLoRA (arXiv 2312.03732).
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    use_rslora: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.use_rslora else self.rank)


def parse_targets(value: str, config: ModelConfig) -> tuple[str, ...]:
    """`all-linear`, or a comma-separated list of the model's linears. Raises UserError on an unknown name."""
    known = linear_names(config)
    if value == "all-linear":
        return known
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in known:
            raise UserError(f"--lora-targets: {name!r} is not one of all-linear, {', '.join(known)}")
    return tuple(name for name in known if name in names)


def adapter_key(layer: int, name: str) -> str:
    """PEFT's tensor name, for a name such as `self_attn.q_proj.lora_A.weight`."""
    return f"base_model.model.model.layers.{layer}.{name}"


def init_adapter(shapes: Iterable[tuple[str, int, int]], rank: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """PEFT's initialisation for (module key, in, out): A uniform in +-1/sqrt(in) (Kaiming, a = sqrt 5), B zero."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for key, in_features, out_features in shapes:
        bound = in_features**-0.5
        a = rng.uniform(-bound, bound, (rank, in_features))
        tensors[f"{key}.lora_A.weight"] = a.astype(np.float32)
        tensors[f"{key}.lora_B.weight"] = np.zeros((out_features, rank), np.float32)
    return tensors


def peft_config(lora: LoraConfig, base_model: str) -> dict[str, Any]:
    """The content of `adapter_config.json`."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.use_rslora,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": list(lora.targets),
    }


def write_adapter(folder: Path, lora: LoraConfig, base_model: str, tensors: dict[str, npt.NDArray[np.float32]]) -> None:
    """Writes both files of an adapter into `folder`."""
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(peft_config(lora, base_model), indent=2) + "\n")
