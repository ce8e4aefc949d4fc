"""`--to mlx`: the adapter in mlx-lm's format, for the same base model in MLX."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.errors import UserError
from mobile_ft.model.lora import DECODER, INSIDE

WEIGHTS_FILE, CONFIG_FILE = "adapters.safetensors", "adapter_config.json"
FILES = (WEIGHTS_FILE, CONFIG_FILE)

_MODULES = {DECODER: "model", INSIDE: "language_model.model"}  # path of the decoder in mlx-lm's classes


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`.

    mlx-lm computes y = x W^T + scale (x a) b, with a [in_features, rank] and b [rank, out_features].
    """
    tensors, keys = {}, []
    lora, base = model.bundle.lora, model.bundle.base
    if base.modules not in _MODULES:
        raise UserError(f"to mlx: mlx-lm has no models with a text model at {base.modules}; convert to another target")
    for name, low_rank in model.low_ranks.items():
        module = name.removeprefix("model.").removesuffix(".weight")
        tensors[f"{_MODULES[base.modules]}.{module}.lora_a"] = np.ascontiguousarray(low_rank.a.T)
        tensors[f"{_MODULES[base.modules]}.{module}.lora_b"] = np.ascontiguousarray(low_rank.b.T)
        keys.append(module.split(".", 2)[2])  # name within the layer
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
