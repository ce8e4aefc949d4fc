"""LoRA adapters in PEFT's file format: `adapter_model.safetensors` and `adapter_config.json`."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from mobile_ft.errors import UserError
from mobile_ft.files.json_values import Values
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.lora_layers import EXPERTS, linear_names, lora_targets

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
MOST_RANK = 256
# Paths of the decoder in Transformers' classes: of text models, and of models with vision.
DECODER, INSIDE, INSIDE_SMOLVLM = DECODERS = ("model", "model.language_model", "model.text_model")
_PREFIXES = (INSIDE, INSIDE_SMOLVLM, "language_model.model", DECODER)  # the third is from before Transformers 4.52
_PEFT = "base_model.model."
EXPERT_PARAMETERS = ("experts.gate_up_proj", "experts.down_proj")  # PEFT's target_parameters, in all families
ANOTHER_BUNDLE = "`mobile-ft export MODEL --adapter DIR` makes a bundle for this adapter"
# Settings of PEFT that change the computation of a linear layer, or adapt other parts of the model.
# runtime/bundle/adapter.cpp has the same lists.
_UNSUPPORTED = (
    *("use_dora", "use_qalora", "use_bdlora", "lora_bias", "fan_in_fan_out", "rank_pattern", "alpha_pattern"),
    *("modules_to_save", "trainable_token_indices", "layer_replication"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config"),
)
_CHANGE_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # prefixes of values of init_lora_weights


@dataclass(frozen=True)
class LoraConfig:
    """LoRA's settings: y = x W^T + scale * (x A^T) B^T on the linear layers in `targets` (arXiv 2106.09685), which
    include "experts" if those of a mixture are adapted.

    The scale is alpha / rank, or alpha / sqrt(rank) with rsLoRA (arXiv 2312.03732).
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    use_rslora: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.use_rslora else self.rank)


@dataclass(frozen=True)
class BaseModel:
    """The checkpoint that an adapter belongs to, as named in the adapter's files."""

    name: str  # a folder, a file, or a name on the hub
    modules: str = DECODER  # path of the decoder, one of DECODERS


def parse_targets(value: str, config: ModelConfig) -> tuple[str, ...]:
    """Parses a comma-separated list of linear layers. It may have `all-linear`, which are all but experts, as in PEFT.
    Raises UserError for an unknown name."""
    known = lora_targets(config)
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in ("all-linear", *known):
            raise UserError(f"lora_targets {name}: must be all-linear, or some of {', '.join(known)}")
    if "all-linear" in names:
        names += linear_names(config)
    return tuple(name for name in known if name in names)


def adapter_key(layer: int, name: str, modules: str = DECODER) -> str:
    """Returns PEFT's tensor name for a name within a layer, such as `self_attn.q_proj.lora_A.weight`."""
    return f"{_PEFT}{modules}.layers.{layer}.{name}"


def within_decoder(key: str) -> str:
    """Returns the part of PEFT's tensor name from `layers` on, or the name itself if it is not in a decoder."""
    return next((key.removeprefix(p) for p in (f"{_PEFT}{x}." for x in _PREFIXES) if key.startswith(p)), key)


def init_adapter(
    shapes: Iterable[tuple[str, tuple[int, int], tuple[int, int]]], seed: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Initializes an adapter as PEFT does, for (module key, shapes of A and B): A is uniform in +-1/sqrt(in) (Kaiming,
    a = sqrt 5), and B is zero."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for key, of_a, of_b in shapes:
        bound = of_a[1] ** -0.5
        tensors[f"{key}.lora_A.weight"] = rng.uniform(-bound, bound, of_a).astype(np.float32)
        tensors[f"{key}.lora_B.weight"] = np.zeros(of_b, np.float32)
    return tensors


def peft_config(lora: LoraConfig, base: BaseModel) -> dict[str, Any]:
    """Returns the content of `adapter_config.json`."""
    names = [target for target in lora.targets if target != EXPERTS]
    targets: list[str] | str = names
    if (
        base.modules != DECODER
    ):  # a regular expression, because other parts of the model have linear layers of these names, too
        targets = rf"{re.escape(base.modules)}\..*\.({'|'.join(map(re.escape, names))})"
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.name,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "use_rslora": lora.use_rslora,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": targets,
        **({"target_parameters": list(EXPERT_PARAMETERS)} if EXPERTS in lora.targets else {}),
    }


def check_supported(values: Values) -> None:
    """Raises ValueError if the values of PEFT's `adapter_config.json` describe more than LoRA on linear layers."""
    if values.get("peft_type", "LORA") != "LORA":
        raise ValueError(f"peft_type is {values['peft_type']!r}; supported: 'LORA'")
    for key in _UNSUPPORTED:
        if values.get(key):
            raise ValueError(f"{key} is {values[key]!r}, which is not supported")
    if values.get("bias", "none") != "none":
        raise ValueError(f"bias is {values['bias']!r}; supported: 'none'")
    if str(values.get("init_lora_weights")).lower().startswith(_CHANGE_THE_BASE):
        raise ValueError(
            f"init_lora_weights is {values['init_lora_weights']!r}, which changes the base model and is not supported"
        )


def write_adapter(folder: Path, lora: LoraConfig, base: BaseModel, tensors: dict[str, npt.NDArray[np.float32]]) -> None:
    """Writes both files of an adapter into `folder`."""
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
    (folder / CONFIG_FILE).write_text(json.dumps(peft_config(lora, base), indent=2) + "\n")
