"""Schedules and packed rows over Qwen3.5's delta nets: gradients against autograd through Transformers and PEFT, in
float64; and checkpoints in a file against those in memory."""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from peft import PeftModel
from safetensors.numpy import load_file

from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.model.shapes import linear_names
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.hf_models import FAMILIES, HfModel, random_model
from tests.runtime.conftest import gradients, relative_error, summed_loss
from tests.runtime.native import events, failure

LAYERS = 4
DELTA, FULL = "linear_attention", "full_attention"
TOKENS = np.random.default_rng(0).integers(0, 250, 150)  # three chunks


class Qwen(NamedTuple):
    bundle: Path
    adapter: Path
    model: Any  # Transformers', in float64


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Qwen:
    folder = tmp_path_factory.mktemp("qwen")
    config = copy.deepcopy(FAMILIES["qwen3_5"])
    config.update({"num_hidden_layers": LAYERS, "layer_types": [DELTA, FULL, DELTA, DELTA]})
    model = random_model(config)
    source = HfModel(model, folder)
    lora = LoraConfig(3, 6.0, linear_names(source.config))
    write_bundle(source, lora, 1024, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    adapter = load_file(folder / "bundle" / "adapter_model.safetensors")
    (folder / "adapter").mkdir()
    adapter = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in adapter.items()}
    write_adapter(folder / "adapter", lora, BaseModel("qwen"), adapter)
    return Qwen(folder / "bundle", folder / "adapter", model.double())


@pytest.fixture
def references(qwen: Qwen) -> list[Any]:
    """The model in float64 and in float32."""
    model = PeftModel.from_pretrained(copy.deepcopy(qwen.model), qwen.adapter, is_trainable=True)
    return [copy.deepcopy(model).double(), model.float()]


def _detach(model: Any, units: list[bool]) -> None:
    """Units that are not selected add their branches without a gradient."""
    for layer, mixer, mlp in zip(model.base_model.model.model.layers, units[::2], units[1::2], strict=True):
        if not mixer and hasattr(layer, "linear_attn"):
            layer.linear_attn.register_forward_hook(lambda _m, _i, out: out.detach())
        elif not mixer:
            layer.self_attn.register_forward_hook(lambda _m, _i, out: (out[0].detach(), *out[1:]))
        if not mlp:
            layer.mlp.register_forward_hook(lambda _m, _i, out: out.detach())


def _run(qwen: Qwen, config: TrainConfig, selected: list[bool]) -> dict[str, np.ndarray]:
    trainer = Trainer(Model(str(qwen.bundle)), config, str(qwen.adapter))
    trainer.accumulate(TOKENS[:-1], TOKENS[1:], np.arange(len(TOKENS) - 1), selected)
    return trainer.gradients()


def _compare(ours: dict[str, np.ndarray], references: list[Any], rows: list[np.ndarray]) -> None:
    """Within 1e-4, or twice the error of Transformers in float32: rounding is amplified where the output of a head is
    small, and then normalized."""
    for model in references:
        for row in rows:  # gradients add up
            summed_loss(model, row[:-1], row[1:]).backward()
    exact, rounded = map(gradients, references)
    assert ours and ours.keys() <= exact.keys()
    allowed = max(1e-4, *(2 * relative_error(rounded[name], exact[name]) for name in ours))
    for name, gradient in ours.items():
        assert relative_error(gradient, exact[name]) < allowed, name


@pytest.mark.parametrize("backward", ["recompute", "store"])
@pytest.mark.parametrize(("schedule", "units_a_layer"), [("full", 1), ("lcsb", 1), ("dropbp", 2)])
def test_selected_units(
    qwen: Qwen, references: list[Any], tmp_path: Path, schedule: str, units_a_layer: int, backward: str
) -> None:
    share = {} if schedule == "full" else {"ratio": 0.5}
    config = TrainConfig(seq_len=256, schedule=schedule, backward=backward, seed=3, **share)
    config.offload_folder = str(tmp_path)
    selected = config.select(1, LAYERS * units_a_layer)
    assert (sum(selected) < len(selected)) == (schedule != "full")
    ours = _run(qwen, config, selected)
    for model in references:
        _detach(model, [flag for flag in selected for _ in range(2 // units_a_layer)])
    _compare(ours, references, [TOKENS])


@pytest.mark.parametrize("schedule", ["suffix", "freeze", "lisa"])
def test_selected_layers(qwen: Qwen, references: list[Any], schedule: str) -> None:
    """The gradient passes through layers that are not trained."""
    config = TrainConfig(seq_len=256, schedule=schedule, ratio=0.5, seed=3, steps=10)
    selected = config.select(9, LAYERS)
    assert sum(selected) < LAYERS
    _compare(_run(qwen, config, selected), references, [TOKENS])


def test_packed_rows(qwen: Qwen, references: list[Any]) -> None:
    """Rows that end within a chunk of tokens, at its end, and after one token."""
    trainer = Trainer(Model(str(qwen.bundle)), TrainConfig(seq_len=256), str(qwen.adapter))
    rows = np.split(TOKENS, np.cumsum([30, 65, 2]))
    inputs, targets = (np.concatenate([row[part] for row in rows]) for part in (slice(-1), slice(1, None)))
    positions = np.concatenate([np.arange(len(row) - 1) for row in rows])
    trainer.accumulate(inputs, targets, positions, [True] * LAYERS)
    _compare(trainer.gradients(), references, rows)


def test_checkpoints_in_a_file(qwen: Qwen, tmp_path: Path) -> None:
    """The smallest budget keeps no checkpoint in memory, and the losses are the same to the last bit."""
    data, row = tmp_path / "tokens.safetensors", np.random.default_rng(0).integers(0, 250, 1025, dtype=np.int32)
    write_token_file(data, pack([EncodedRow(row[:-1], row[1:])], 1024, 0))
    run = ["train", qwen.bundle, "--data", data, "--seq-len", 1024, "--steps", 2]
    needed = int(failure(*run, "--budget", "1MB", "--out", tmp_path / "none").split("needs ")[1].split("MB")[0])
    offloading = events(*run, "--budget", f"{needed}MB", "--out", tmp_path / "offloading")
    plain = events(*run, "--mlp-tokens", offloading[0]["mlp_tokens"], "--out", tmp_path / "plain")
    assert offloading[0]["offloaded"] > 0
    assert offloading[-1]["losses"] == plain[-1]["losses"]
