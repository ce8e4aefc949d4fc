"""Schedules and packed rows over units that are more than attention and MLP: Qwen3.5's delta nets, Granite's Mamba-2
layers, Nemotron's layers of one unit, experts, alone and beside an MLP, Gemma 4's keys and values that layers share,
and its per-layer embeddings. Gradients against autograd through Transformers and PEFT, in float64; and checkpoints in a
file against those in memory."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import load_file

from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.model.lora_layers import lora_targets
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.hf_models import FAMILIES, HfModel, random_model
from tests.runtime.conftest import gradients, relative_error, summed_loss
from tests.runtime.native import command, events, failure

DELTA, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
LAYERS: dict[str, dict[str, Any]] = {
    "qwen3_5": {"layer_types": [DELTA, FULL, DELTA, DELTA]},
    "granite4": {"layer_types": [DELTA, FULL, DELTA, DELTA]},  # here, linear attention is Mamba-2
    "falcon_h1": {"num_hidden_layers": 4},
    "nemotron_h": {"layers_block_type": [DELTA, "mlp", FULL, "mlp", DELTA, "mlp"]},
    "qwen3_next": {"layer_types": [DELTA, FULL, DELTA, FULL]},
    "lfm2_moe": {"layer_types": ["conv", FULL, "conv", FULL]},
    # Units that give keys and values, and that take them, in layers that a schedule selects and in others.
    "gemma4": {"layer_types": [SLIDING, FULL, SLIDING, FULL, SLIDING, FULL], "num_kv_shared_layers": 3},
}
TOKENS = np.random.default_rng(0).integers(0, 250, 150)  # three chunks


class Family(NamedTuple):
    bundle: Path
    adapter: Path
    model: Any  # Transformers', in float64
    layers: int


@pytest.fixture(scope="module", params=LAYERS)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    changed, values = LAYERS[request.param], FAMILIES[request.param].to_dict()
    layers = changed.get("num_hidden_layers") or len(next(iter(changed.values())))
    values.pop("per_layer_config", None)
    heads = {"global_head_dim": 32} if request.param == "gemma4" else {}
    config = type(FAMILIES[request.param])(**values | changed | heads | {"num_hidden_layers": layers})
    model = random_model(config)
    source = HfModel(model, folder)
    lora = LoraConfig(3, 6.0, lora_targets(source.config))
    write_bundle(source, lora, 1024, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    adapter = load_file(folder / "bundle" / "adapter_model.safetensors")
    (folder / "adapter").mkdir()
    adapter = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in adapter.items()}
    write_adapter(folder / "adapter", lora, BaseModel(request.param), adapter)
    return Family(folder / "bundle", folder / "adapter", model.double(), layers)


@pytest.fixture
def references(family: Family) -> list[Any]:
    """The model in float64 and in float32."""
    model = PeftModel.from_pretrained(copy.deepcopy(family.model), family.adapter, is_trainable=True)
    return [copy.deepcopy(model).double(), model.float()]


def _branches(layer: Any) -> list[list[Any]]:
    """The modules whose outputs are a branch of the layer, for each branch in execution order."""
    if hasattr(layer, "mixer"):  # a layer of one unit
        return [[layer.mixer]]
    mixers, mlps = ("linear_attn", "mamba", "conv", "self_attn"), ("mlp", "shared_mlp", "feed_forward")
    mixer, mlp = ([getattr(layer, n) for n in names if getattr(layer, n, None)] for names in (mixers, mlps))
    return [mixer, mlp, *([[layer.post_per_layer_input_norm]] if hasattr(layer, "per_layer_projection") else [])]


def _detached(module: Any, _args: Any, kwargs: dict[str, Any], out: Any) -> Any:
    """A branch without gradient, also to the keys and values that it gives to later layers."""
    if getattr(module, "store_full_length_kv", False):
        shared = kwargs["shared_kv_states"]
        shared[module.layer_type] = tuple(x.detach() for x in shared[module.layer_type])
    return out.detach() if isinstance(out, torch.Tensor) else (out[0].detach(), *out[1:])


def _detach(model: Any, units: list[bool]) -> None:
    """Units that are not selected add their branches without a gradient."""
    branches = [branch for layer in model.base_model.model.model.layers for branch in _branches(layer)]
    for branch, selected in zip(branches, units, strict=True):
        for module in branch if not selected else []:
            module.register_forward_hook(_detached, with_kwargs=True)


def _run(family: Family, config: TrainConfig, selected: list[bool]) -> dict[str, np.ndarray]:
    trainer = Trainer(Model(str(family.bundle)), config, str(family.adapter))
    trainer.accumulate(TOKENS[:-1], TOKENS[1:], np.arange(len(TOKENS) - 1), selected)
    return trainer.gradients()


def _compare(ours: dict[str, np.ndarray], references: list[Any], rows: list[np.ndarray]) -> None:
    """Within 1e-4, or three times the error of Transformers in float32: rounding is amplified where the output of a
    head is small, and then normalized."""
    for model in references:
        for row in rows:  # gradients add up
            summed_loss(model, row[:-1], row[1:]).backward()
    exact, rounded = map(gradients, references)
    assert ours and ours.keys() <= exact.keys()
    allowed = max(1e-4, *(3 * relative_error(rounded[name], exact[name]) for name in ours))
    for name, gradient in ours.items():
        assert relative_error(gradient, exact[name]) < allowed, name


@pytest.mark.parametrize("backward", ["recompute", "store"])
@pytest.mark.parametrize("schedule", ["full", "lcsb", "dropbp"])
def test_selected_units(family: Family, references: list[Any], tmp_path: Path, schedule: str, backward: str) -> None:
    share = {} if schedule == "full" else {"ratio": 0.5}
    config = TrainConfig(seq_len=256, schedule=schedule, backward=backward, seed=3, **share)
    config.offload_folder = str(tmp_path)
    units = len(_branches(family.model.model.layers[0]))
    together = 1 if schedule == "dropbp" else units  # units that are selected at once
    selected = config.select(1, family.layers * units // together)
    assert (sum(selected) < len(selected)) == (schedule != "full")
    ours = _run(family, config, selected)
    for model in references:
        _detach(model, [flag for flag in selected for _ in range(together)])
    _compare(ours, references, [TOKENS])


@pytest.mark.parametrize("schedule", ["suffix", "freeze", "lisa"])
def test_selected_layers(family: Family, references: list[Any], schedule: str) -> None:
    """The gradient passes through layers that are not trained."""
    config = TrainConfig(seq_len=256, schedule=schedule, ratio=0.5, seed=3, steps=10)
    selected = config.select(9, family.layers)
    assert sum(selected) < family.layers
    _compare(_run(family, config, selected), references, [TOKENS])


def test_packed_rows(family: Family, references: list[Any]) -> None:
    """Rows that end within a chunk of tokens, at its end, and after one token."""
    trainer = Trainer(Model(str(family.bundle)), TrainConfig(seq_len=256), str(family.adapter))
    rows = np.split(TOKENS, np.cumsum([30, 65, 2]))
    inputs, targets = (np.concatenate([row[part] for row in rows]) for part in (slice(-1), slice(1, None)))
    positions = np.concatenate([np.arange(len(row) - 1) for row in rows])
    trainer.accumulate(inputs, targets, positions, [True] * family.layers)
    _compare(trainer.gradients(), references, rows)


def test_checkpoints_in_a_file(family: Family, tmp_path: Path) -> None:
    """The smallest budget keeps at most one checkpoint in memory, and the losses are the same to the last bit."""
    data, row = tmp_path / "tokens.safetensors", np.random.default_rng(0).integers(0, 250, 1025, dtype=np.int32)
    write_token_file(data, pack([EncodedRow(row[:-1], row[1:])], 1024, 0))
    run = ["train", family.bundle, "--data", data, "--seq-len", 1024, "--steps", 2]
    needed = int(failure(*run, "--budget", "1MB", "--out", tmp_path / "none").split("needs ")[1].split("MB")[0])
    # An error's need leaves room for another process, whose start may take more: here, more than all checkpoints.
    budgets = range((needed - 3) * 1_000_000, needed * 1_000_000 + 1, 200_000)
    runs = (
        subprocess.run(command(*run, "--budget", budget, "--out", tmp_path / "offloading"), capture_output=True)
        for budget in budgets
    )
    fits = next(done for done in runs if done.returncode == 0)
    offloading = [json.loads(line) for line in fits.stdout.splitlines()]
    plain = events(*run, "--mlp-tokens", offloading[0]["mlp_tokens"], "--out", tmp_path / "plain")
    assert offloading[0]["offloaded"] > 0
    assert offloading[-1]["losses"] == plain[-1]["losses"]


def test_sensitivities(family: Family, tmp_path: Path) -> None:
    """DropBP's, against their definition: the norms of all gradients, and again with each unit dropped."""
    data, row = tmp_path / "tokens.safetensors", TOKENS.astype(np.int32)
    write_token_file(data, pack([EncodedRow(row[:-1], row[1:])], 256, 0))
    options = ["--data", data, "--adapter", family.adapter, "--seq-len", 256, "--schedule", "dropbp", "--ratio", 0.5]
    events("train", family.bundle, *options, "--steps", 1, "--out", tmp_path / "run")
    measured = load_file(tmp_path / "run" / "checkpoint.safetensors")["sensitivities"]

    config = TrainConfig(seq_len=256, schedule="dropbp", ratio=1.0)
    config.offload_folder = str(tmp_path)
    trainer = Trainer(Model(str(family.bundle)), config, str(family.adapter))

    def norms(selected: np.ndarray) -> dict[str, float]:
        trainer.accumulate(TOKENS[:-1], TOKENS[1:], np.arange(len(TOKENS) - 1), selected.tolist())
        return {name: float(np.linalg.norm(x)) / (len(TOKENS) - 1) for name, x in trainer.gradients().items()}

    units = len(measured)
    whole = norms(np.ones(units, bool))
    for dropped in range(units):
        changed = norms(np.arange(units) != dropped)
        expected = sum((norm - changed.get(name, 0.0)) ** 2 for name, norm in whole.items())
        assert measured[dropped] == pytest.approx(expected, rel=1e-3)
