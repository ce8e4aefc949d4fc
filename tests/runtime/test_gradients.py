"""LoRA gradients of the runtime against autograd through Transformers and PEFT on the same weights.

The reference runs in float64: float32 autograd is itself up to 5e-4 away from it (cross-entropy over 49152 logits, and
activations of 2e4 at the first token), the runtime about 1e-5.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.runtime.conftest import gradients, relative_error, summed_loss

LAYERS = 30


@pytest.fixture
def reference(peft_model: Any) -> Any:
    return peft_model.double()


@pytest.fixture(scope="module")
def trainer(smollm2: Path, adapter: Path) -> Trainer:
    return Trainer(Model(str(smollm2)), TrainConfig(seq_len=256), str(adapter))


def run(trainer: Trainer, tokens: np.ndarray, layers: list[bool]) -> tuple[float, dict[str, np.ndarray]]:
    loss = trainer.accumulate(tokens[:-1], tokens[1:], np.arange(len(tokens) - 1), layers)
    return loss, trainer.gradients()


def detach_branches(model: Any, layers: list[bool]) -> None:
    """Unselected layers add their branches detached: forward complete, gradient by the identity path (LCSB)."""
    for layer, selected in zip(model.base_model.model.model.layers, layers, strict=True):
        if not selected:
            layer.self_attn.register_forward_hook(lambda _m, _i, out: (out[0].detach(), *out[1:]))
            layer.mlp.register_forward_hook(lambda _m, _i, out: out.detach())


@pytest.mark.parametrize("length", [1, 7, 64, 256])
def test_full_gradients(trainer: Trainer, reference: Any, text_tokens: np.ndarray, length: int) -> None:
    tokens = text_tokens[: length + 1]
    loss, ours = run(trainer, tokens, [True] * LAYERS)
    expected = summed_loss(reference, tokens[:-1], tokens[1:])
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, theirs in gradients(reference).items():
        if length == 1 and ("q_proj" in name or "k_proj" in name):
            # One key: its weight is 1 whatever the score, and the gradient exactly 0 but for rounding.
            assert np.abs(ours[name]).max() < 1e-3
            continue
        assert relative_error(ours[name], theirs) < 1e-4, name


@pytest.mark.parametrize("options", [{}, {"grad_accum": 2, "max_grad_norm": 0}])
def test_gradients_of_b_alone(
    smollm2: Path, adapter: Path, reference: Any, text_tokens: np.ndarray, options: dict[str, Any]
) -> None:
    """A has none, and stays to the bit what it is in computing."""
    model = Model(str(smollm2))
    trainer = Trainer(model, TrainConfig(seq_len=64, lora_train="b", **options), str(adapter))
    tokens = text_tokens[:65]
    before = model.parameters()
    _, ours = run(trainer, tokens, [True] * LAYERS)
    after = model.parameters()
    assert all(np.array_equal(before[name], values) for name, values in after.items())
    for name, parameter in reference.named_parameters():
        parameter.requires_grad_("lora_B" in name)
    summed_loss(reference, tokens[:-1], tokens[1:]).backward()
    expected = gradients(reference)
    assert ours.keys() == expected.keys() == {name for name in before if "lora_B" in name}
    for name, theirs in expected.items():
        assert relative_error(ours[name], theirs) < 1e-4, name


@pytest.mark.parametrize("selection", ["contiguous", "strided", "random"])
def test_lcsb_gradients(trainer: Trainer, reference: Any, text_tokens: np.ndarray, selection: str) -> None:
    tokens = text_tokens[:65]
    config = TrainConfig(schedule="lcsb", selection=selection, ratio=0.5, seed=3)
    layers = config.select(1, LAYERS)
    assert sum(layers) == LAYERS // 2
    before = trainer.backward_runs
    _, ours = run(trainer, tokens, layers)
    runs = np.array(trainer.backward_runs) - before
    assert runs.tolist() == np.repeat(layers, 2).astype(int).tolist()  # attention and MLP unit of each layer
    detach_branches(reference, layers)
    summed_loss(reference, tokens[:-1], tokens[1:]).backward()
    expected = gradients(reference)
    checked = 0
    for name, theirs in expected.items():
        if layers[int(name.split(".layers.")[1].split(".")[0])]:
            assert relative_error(ours[name], theirs) < 1e-4, name
            checked += 1
    assert checked == LAYERS // 2 * 14


@pytest.mark.parametrize("depth", [1, 7])
def test_suffix_gradients(trainer: Trainer, reference: Any, text_tokens: np.ndarray, depth: int) -> None:
    tokens = text_tokens[:65]
    layers = TrainConfig(schedule="suffix", suffix_depths=[depth]).select(0, LAYERS)
    assert layers == [False] * (LAYERS - depth) + [True] * depth
    before = trainer.backward_runs
    _, ours = run(trainer, tokens, layers)
    assert (np.array(trainer.backward_runs) - before).tolist() == np.repeat(layers, 2).astype(int).tolist()
    for layer in reference.base_model.model.model.layers[: LAYERS - depth]:
        layer.requires_grad_(False)
    summed_loss(reference, tokens[:-1], tokens[1:]).backward()
    expected = gradients(reference)
    assert len(expected) == depth * 14
    for name, theirs in expected.items():
        assert relative_error(ours[name], theirs) < 1e-4, name


def test_lisa_gradients(smollm2: Path, adapter: Path, trainer: Trainer, text_tokens: np.ndarray) -> None:
    """Through layers that are not trained the gradient goes exactly, to the lowest that is."""
    tokens = text_tokens[:65]
    config = TrainConfig(seq_len=256, schedule="lisa", ratio=0.1, seed=3)
    lisa = Trainer(Model(str(smollm2)), config, str(adapter))
    layers = config.select(0, LAYERS)
    assert sum(layers) == 3
    _, expected = run(trainer, tokens, [True] * LAYERS)
    _, ours = run(lisa, tokens, layers)
    assert len(ours) == 3 * 14
    for name, gradient in ours.items():
        assert np.array_equal(gradient, expected[name]), name
    lowest = layers.index(True)
    assert lisa.backward_runs == [0] * 2 * lowest + [1] * 2 * (LAYERS - lowest)


def test_dropbp_gradients(
    smollm2: Path, adapter: Path, reference: Any, text_tokens: np.ndarray, tmp_path: Path
) -> None:
    """Attention and MLP branches are dropped one by one: those are detached, all others get the gradient past them."""
    config = TrainConfig(seq_len=256, schedule="dropbp", ratio=0.5, seed=3)
    config.offload_folder = str(tmp_path)
    dropbp = Trainer(Model(str(smollm2)), config, str(adapter))
    tokens = text_tokens[:65]
    units = config.select(0, 2 * LAYERS)
    assert sum(units) <= LAYERS and units[::2] != units[1::2]
    _, ours = run(dropbp, tokens, units)
    assert dropbp.backward_runs == [int(kept) for kept in units]
    for layer, attention, mlp in zip(reference.base_model.model.model.layers, units[::2], units[1::2], strict=True):
        if not attention:
            layer.self_attn.register_forward_hook(lambda _m, _i, out: (out[0].detach(), *out[1:]))
        if not mlp:
            layer.mlp.register_forward_hook(lambda _m, _i, out: out.detach())
    summed_loss(reference, tokens[:-1], tokens[1:]).backward()
    expected = gradients(reference)
    assert ours.keys() == expected.keys()
    for name, theirs in expected.items():
        assert relative_error(ours[name], theirs) < 1e-4, name


def test_packed_rows_do_not_see_each_other(trainer: Trainer, text_tokens: np.ndarray) -> None:
    """Two rows in one micro-batch give the sum of the losses and gradients of each alone."""
    a, b = text_tokens[:40], text_tokens[100:160]
    every = [True] * LAYERS
    loss_a, grad_a = run(trainer, a, every)
    loss_b, grad_b = run(trainer, b, every)
    inputs, targets = np.concatenate([a[:-1], b[:-1]]), np.concatenate([a[1:], b[1:]])
    positions = np.concatenate([np.arange(len(a) - 1), np.arange(len(b) - 1)])
    loss = trainer.accumulate(inputs, targets, positions, every)
    assert loss == pytest.approx(loss_a + loss_b, rel=1e-6)
    for name, packed in trainer.gradients().items():
        assert relative_error(packed, grad_a[name] + grad_b[name]) < 1e-4, name


def test_targets_without_loss(trainer: Trainer, reference: Any, text_tokens: np.ndarray) -> None:
    tokens = text_tokens[:33]
    targets = tokens[1:].copy()
    targets[:20] = -100
    loss = trainer.accumulate(tokens[:-1], targets, np.arange(32), [True] * LAYERS)
    logits = reference(torch.from_numpy(tokens[:-1])[None]).logits[0].double()
    expected = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets), reduction="sum")
    assert loss == pytest.approx(expected.item(), rel=1e-5)
