"""A whole small model of every weight format: the runtime against mobile_ft.model.units in PyTorch, in float64."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model import units
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import FORMATS, PackedWeight
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.model.shapes import unit_types
from mobile_ft.model.unit_spec import unit_spec
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.mobile_ft.model.test_formats import random_weight
from tests.runtime.conftest import relative_error
from tests.targets import ALL_LINEAR

CONFIG = ModelConfig("units", 64, 128, 3, 4, 2, 16, 250, 1e-5, 1e4, 512, False)
RANK, ALPHA = 3, 6.1  # an alpha that no float32 holds exactly


class FormatModel(RandomModel):
    """Random weights in one format throughout, except that layer 1 holds another, as mixed GGUF files do."""

    def __init__(self, fmt: str):
        super().__init__(CONFIG, 0)
        self.fmt = fmt
        self.weights: dict[str, PackedWeight] = {}

    def format_of(self, name: str) -> str:
        return "q8_0" if "layers.1." in name else self.fmt

    def packed(self, name: str, in_features: int, out_features: int) -> PackedWeight:
        fmt = self.format_of(name)
        scale = {"f16": 0.03, "nf4": 0.05, "q8_1": 2e-4}.get(FORMATS[fmt].kind, 0.005)
        self.weights[name], _ = random_weight(fmt, out_features, in_features, scale, seed=len(self.weights))
        return self.weights[name]


def reference(
    model: FormatModel,
    activation: str,
    adapter: dict[str, np.ndarray],
    tokens: np.ndarray,
    targets: np.ndarray,
    positions: np.ndarray,
) -> tuple[float, dict[str, torch.Tensor]]:
    """Summed loss and LoRA gradients through the PyTorch ops."""

    def weight(name: str) -> torch.Tensor:
        return torch.from_numpy(model.weights[name].data)

    lora = {k: torch.from_numpy(v).double().requires_grad_() for k, v in adapter.items()}
    ones = torch.ones(CONFIG.hidden_size, dtype=torch.float64)
    place, frequencies = torch.from_numpy(positions), torch.from_numpy(model.inv_freq(0))
    x = units.embed(CONFIG, model.fmt, torch.from_numpy(tokens), weight("model.embed_tokens.weight")).double()
    for layer in range(CONFIG.num_hidden_layers):
        for unit_type in unit_types(CONFIG, 0):
            prefix = f"model.layers.{layer}."
            spec = unit_spec(model, layer, unit_type, LoraConfig(RANK, ALPHA, ALL_LINEAR), activation)
            weights = [ones] + [weight(f"{prefix}{n}") for n in spec.weights[1:]]
            adapters = [lora[f"base_model.model.{prefix}{n}"] for n in spec.lora]
            rotary = frequencies if unit_type == "attn" else None
            (x,) = units.forward(spec, x, place, [], rotary, weights, adapters)
    losses, dx = units.head(CONFIG, model.fmt, x.detach(), torch.from_numpy(targets), ones, weight("lm_head.weight"))
    x.backward(dx)
    return losses.sum().item(), {k: v.grad for k, v in lora.items() if v.grad is not None}


@pytest.fixture
def batch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    tokens, targets = rng.integers(0, 250, (2, 37))
    targets[::5] = -100
    return tokens, targets, np.concatenate([np.arange(20), np.arange(17)])


@pytest.mark.parametrize(
    ("fmt", "activation"),
    [
        *((fmt, "exact") for fmt in ("q4_0", "q4_1_g64", "q8_0", "q8_1_g16", "f16", "nf4_g64")),
        ("q4_0", "approx2bit"),
    ],
)
def test_runtime_equals_reference(
    fmt: str, activation: str, batch: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    source = FormatModel(fmt)
    bundle = write_bundle(source, LoraConfig(RANK, ALPHA, ALL_LINEAR), 64, 0, tmp_path / "bundle", activation)
    kinds = {unit["kind"] for unit in bundle["units"]}
    assert kinds == ({"attn", "mlp"} if fmt == "q8_0" else {"attn", "attn1", "mlp", "mlp1"})
    rng = np.random.default_rng(2)
    adapter = load_file(tmp_path / "bundle" / "adapter_model.safetensors")
    adapter = {k: (0.05 * rng.standard_normal(v.shape)).astype(np.float32) for k, v in adapter.items()}
    write_adapter(tmp_path, LoraConfig(RANK, ALPHA, ALL_LINEAR), BaseModel("units"), adapter)

    trainer = Trainer(Model(str(tmp_path / "bundle")), TrainConfig(seq_len=64), str(tmp_path))
    loss = trainer.accumulate(*batch, [True] * CONFIG.num_hidden_layers)
    expected, gradients = reference(source, activation, adapter, *batch)
    assert loss == pytest.approx(expected, rel=1e-5)
    ours = trainer.gradients()
    assert set(gradients) == set(ours)
    for name, theirs in gradients.items():
        assert relative_error(ours[name], theirs.numpy()) < 1e-4, name

    if activation != "exact":
        return
    # Stored activations are the ones that would be recomputed: the same gradients to the last bit.
    stored = Trainer(Model(str(tmp_path / "bundle")), TrainConfig(seq_len=64, backward="store"), str(tmp_path))
    assert stored.accumulate(*batch, [True] * CONFIG.num_hidden_layers) == loss
    assert all(np.array_equal(gradient, ours[name]) for name, gradient in stored.gradients().items())


def test_some_targets_only(token_file: Callable[..., Path], tmp_path: Path) -> None:
    """LoRA on two linears: the others train nothing, and the adapter holds nothing of them."""
    source = RandomModel(CONFIG, 0)
    write_bundle(source, LoraConfig(RANK, ALPHA, ("q_proj", "v_proj")), 64, 0, tmp_path / "bundle")
    model = Model(str(tmp_path / "bundle"))
    trainer = Trainer(model, TrainConfig(seq_len=32, steps=2), "")
    assert len(model.parameters()) == 2 * 2 * CONFIG.num_hidden_layers
    tokens = np.arange(20)
    trainer.accumulate(tokens, tokens, tokens, [True] * CONFIG.num_hidden_layers)
    assert all(np.abs(g).max() > 0 for n, g in trainer.gradients().items() if "lora_B" in n)
