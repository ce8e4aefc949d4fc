"""A tiny model with an adapter, as a bundle and in Transformers, for tests of losses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from tests.hf_models import FAMILIES, HfModel, random_model
from tests.targets import ALL_LINEAR

RANK, ALPHA = 3, 6.0


class LossModel(NamedTuple):
    bundle: Path
    adapter: Path
    base: Callable[[], Any]  # a fresh Transformers model of the same weights, float64


def loss_model(folder: Path) -> LossModel:
    base, lora = random_model(FAMILIES["llama3"]), LoraConfig(RANK, ALPHA, ALL_LINEAR)
    write_bundle(HfModel(base, folder), lora, 256, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    tensors = load_file(folder / "bundle" / "adapter_model.safetensors")
    tensors = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in tensors.items()}
    (folder / "adapter").mkdir()
    write_adapter(folder / "adapter", lora, BaseModel("llama3"), tensors)
    weights = {name: value.clone() for name, value in base.state_dict().items()}

    def fresh() -> Any:
        again = random_model(FAMILIES["llama3"])
        again.load_state_dict(weights)
        return again.double()

    return LossModel(folder / "bundle", folder / "adapter", fresh)
