"""`--to mlx`: the adapter in mlx-lm's format, for the same base model in MLX."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.errors import UserError
from mobile_ft.export.source.mlx_layout import mlx_parts, multiplies_weights
from mobile_ft.model.lora import DECODER, INSIDE

WEIGHTS_FILE, CONFIG_FILE = "adapters.safetensors", "adapter_config.json"
FILES = (WEIGHTS_FILE, CONFIG_FILE)

_MODULES = {DECODER: "model", INSIDE: "language_model.model"}  # path of the decoder in mlx-lm's classes
_DECODERS = {"nemotron_h": "backbone"}  # where it has another name
UNKNOWN = ("arcee", "granite_swa", "granitemoeshared", "hyperclovax", "lfm3", "ministral", "vaultgemma")


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`.

    mlx-lm computes y = x W^T + scale (x a) b, with a [in_features, rank] and b [rank, out_features]. Those of experts
    are transposed, a [experts, rank, in_features] and b [experts, out_features, rank].
    """
    tensors, keys = {}, []
    lora, base = model.bundle.lora, model.bundle.base
    if base.modules not in _MODULES:
        raise UserError(f"to mlx: mlx-lm has no models with a text model at {base.modules}; convert to another target")
    if multiplies_weights(model.config.family):
        raise UserError(f"to mlx: mlx-lm multiplies the weights of a {model.config.model_type}; use another target")
    if model.config.model_type in UNKNOWN:
        raise UserError(f"to mlx: mlx-lm does not support {model.config.model_type}; use another target")
    decoder = _DECODERS.get(model.config.model_type, _MODULES[base.modules])
    for name, low_rank in model.low_ranks.items():
        module = name.removeprefix("model.").removesuffix(".weight")
        _, layer, linear = module.split(".", 2)
        parts = mlx_parts(model.config, linear) or (linear,)
        for part, b in zip(parts, np.split(low_rank.b, len(parts), axis=1), strict=True):
            a, b = (low_rank.a, b) if len(b) > 1 else (low_rank.a[0].T, b[0].T)
            tensors[f"{decoder}.layers.{layer}.{part}.lora_a"] = np.ascontiguousarray(a)
            tensors[f"{decoder}.layers.{layer}.{part}.lora_b"] = np.ascontiguousarray(b)
            keys.append(part)
    config = {
        "model": base.name,
        "fine_tune_type": "lora",
        "num_layers": model.config.num_hidden_layers,  # number of adapted layers, counted from the top
        "lora_parameters": {
            "rank": lora.rank,
            "scale": lora.scale,
            "dropout": 0.0,
            "keys": list(dict.fromkeys(keys)),
        },
    }
    save_file(tensors, out / WEIGHTS_FILE, metadata={"format": "mlx"})
    (out / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
