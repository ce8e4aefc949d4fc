"""Losses of a run: weighted targets against PyTorch, and what preferences and labels teach."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from mobile_ft.runtime import Model, TokenFile, TrainConfig, Trainer
from tests.runtime.conftest import gradients, relative_error
from tests.runtime.loss_model import LossModel, loss_model
from tests.runtime.native import events


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LossModel:
    return loss_model(tmp_path_factory.mktemp("losses"))


def test_weighted_targets(model: LossModel) -> None:
    from peft import PeftModel

    rng = np.random.default_rng(2)
    tokens, targets = rng.integers(0, 250, (2, 60))
    targets[:7] = -100
    weights = rng.uniform(0, 3, 60).astype(np.float32)
    weights[20:30] = 0
    trainer = Trainer(Model(str(model.bundle)), TrainConfig(seq_len=64), str(model.adapter))
    loss = trainer.accumulate(tokens, targets, np.arange(60), [True] * 2, weights=weights.tolist())
    peft = PeftModel.from_pretrained(model.base(), model.adapter, is_trainable=True).double()
    losses = torch.nn.functional.cross_entropy(
        peft(torch.from_numpy(tokens)[None]).logits[0], torch.from_numpy(targets), reduction="none"
    )
    expected = (losses * torch.from_numpy(weights)).sum()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    ours = trainer.gradients()
    for name, theirs in gradients(peft).items():
        assert relative_error(ours[name], theirs) < 1e-5, name


def answers_file(path: Path, groups: int, seed: int, kind: str, rows_each: int = 1) -> Path:
    """Answers that differ in one habit: chosen ones count up, rejected ones repeat a token.

    `kind` is "pairs", or "labels" with `rows_each` rows in a sequence.
    """
    rng = np.random.default_rng(seed)
    tokens, targets, positions, labels, offsets = [], [], [], [], [0]
    for group in range(groups):
        for i in range(2 if kind == "pairs" else rows_each):
            liked = i == 0 if kind == "pairs" else (group + i) % 2 == 0
            if i == 0 or kind == "labels":
                prompt, start = rng.integers(0, 100, 4), rng.integers(100, 200)
            row = np.concatenate([prompt, start + np.arange(8) if liked else np.full(8, start)])
            tokens.append(row[:-1])
            targets.append(np.where(np.arange(11) >= 3, row[1:], -100))
            positions.append(np.arange(11))
            labels.append(np.full(11, liked, np.uint8))
        offsets.append(sum(map(len, tokens)))
    arrays = {"tokens": tokens, "targets": targets, "positions": positions}
    tensors = {name: np.concatenate(parts).astype(np.int32) for name, parts in arrays.items()}
    if kind == "labels":
        tensors["labels"] = np.concatenate(labels)
    save_file(tensors | {"offsets": np.array(offsets)}, path, metadata={"rows": kind})
    return path


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("dpo", []),
        ("dpo", ["--label-smoothing", 0.1, "--sft-weight", 0.2]),
        ("ipo", ["--beta", 0.3]),
        ("simpo", ["--beta", 2]),
        ("orpo", []),
        ("kto", []),
        ("kto", ["--sft-weight", 0.2]),
    ],
)
def test_learns_what_is_preferred(loss: str, options: list[object], model: LossModel, tmp_path: Path) -> None:
    kind, compares = "labels" if loss == "kto" else "pairs", loss in ("dpo", "ipo", "kto")
    train, valid = (answers_file(tmp_path / f"{i}.tokens", n, i, kind, 2) for i, n in ((0, 200), (1, 20)))
    run = ["train", model.bundle, "--data", train, "--valid", valid, "--loss", loss, "--seq-len", 64, "--steps", 150]
    run += ["--batch-size", 2, "--lr", 1e-2, "--eval-every", 25, "--out", tmp_path / "out"]
    *all_events, done = events(*run, *options)
    steps = [event for event in all_events if event["event"] == "step"]
    evals = [event for event in all_events if event["event"] == "eval"]
    if compares:  # the adapter starts as nothing
        assert steps[0]["reward_margin"] == pytest.approx(0, abs=1e-6)
    if not options or loss in ("ipo", "simpo"):
        first = {"dpo": np.log(2), "ipo": 1 / (2 * 0.3) ** 2, "kto": 0.5}.get(loss)
        assert first is None or steps[0]["loss"] == pytest.approx(first, abs=1e-6)
    margins = [event["reward_margin"] for event in evals]
    assert margins[-1] > margins[0] and margins[-1] > (0.05 if loss in ("ipo", "orpo") else 0.5)
    assert evals[-1]["loss"] < evals[0]["loss"]
    if loss == "kto":
        assert all(event["kl"] >= 0 for event in steps + evals) and evals[-1]["kl"] > 0
    else:
        assert evals[-1]["reward_accuracy"] >= 0.8
    assert done["peak_anon_mb"] <= done["planned_anon_mb"]
    assert json.loads(json.dumps(done))["best_loss"] == min(event["loss"] for event in evals)


@pytest.mark.parametrize(("loss", "rows_each"), [("dpo", 2), ("kto", 3), ("kto", 1)])
def test_reference_is_computed_once_a_row(loss: str, rows_each: int, model: LossModel, tmp_path: Path) -> None:
    """Epochs take the losses of the first one, which are those of a trainer that computes them at each step."""
    data = answers_file(tmp_path / "rows.tokens", 6, 0, "labels" if loss == "kto" else "pairs", rows_each)

    def run(out: str, steps: int, *options: object) -> dict[str, Any]:
        command = ["train", model.bundle, "--data", data, "--loss", loss, "--seq-len", 64, "--steps", steps]
        command += ["--batch-size", 2, "--lr", 1e-2, "--warmup-steps", 0, "--lr-scheduler", "constant"]
        return events(*command, "--threads", 1, "--save-every", 5, "--out", tmp_path / out, *options)[-1]

    def passes(done: dict[str, Any]) -> int:  # without gradient
        calls: int = done["method_seconds"]["head_loss"]["calls"]
        return calls

    one, three = run("one", 3), run("three", 9)  # epochs of 3 steps of 2 sequences
    mixed = loss == "kto"  # whose mismatched rows the adapter computes at every step, and the reference once
    assert passes(one) == 6 * (3 if mixed else 1)
    assert passes(three) == 6 * (2 if mixed else 1) + 18 * mixed
    assert three["losses"][:3] == one["losses"]
    config = {"loss": loss, "seq_len": "64", "steps": "9", "batch_size": "2", "lr": "1e-2", "threads": "1"}
    trainer = Trainer(Model(str(model.bundle)), TrainConfig(**config, warmup_steps="0", lr_scheduler="constant"))
    tokens = TokenFile(str(data), 250)
    assert [trainer.step(tokens)["loss"] for _ in range(9)] == three["losses"]


def test_an_answer_alone_has_no_other_to_compare_with(model: LossModel, tmp_path: Path) -> None:
    data = answers_file(tmp_path / "rows.tokens", 1, 0, "labels")
    options = ["--loss", "kto", "--seq-len", 64, "--steps", 3, "--lr", 1e-2, "--out", tmp_path / "out"]
    steps = [event for event in events("train", model.bundle, "--data", data, *options) if event["event"] == "step"]
    assert [event["kl"] for event in steps] == [0, 0, 0] and steps[-1]["loss"] < steps[0]["loss"]


def test_reference_is_of_the_data_of_the_step(model: LossModel, tmp_path: Path) -> None:
    """A cache of one file's rows is not read for another's."""
    few, many = (answers_file(tmp_path / f"{n}.tokens", n, n, "pairs") for n in (2, 9))
    losses = []
    for offload in ("", str(tmp_path)):
        config = TrainConfig(loss="dpo", seq_len="64", steps="6", lr="1e-2", threads="1", warmup_steps="0")
        config.offload_folder = offload
        trainer = Trainer(Model(str(model.bundle)), config)
        losses.append([trainer.step(TokenFile(str(data), 250))["loss"] for data in (few, few, few, many, many, few)])
    assert losses[0] == losses[1]


def test_a_pair_weighs_what_it_is_given(model: LossModel) -> None:
    """A pair of weight 0 changes nothing, one of weight 2 counts twice."""
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 250, (4, 10))
    tokens, targets, positions = rows[:, :-1].ravel(), rows[:, 1:].ravel(), np.tile(np.arange(9), 4)
    trainer = Trainer(Model(str(model.bundle)), TrainConfig(seq_len=64, loss="dpo"), str(model.adapter))

    def run(weights: list[float], chosen: slice = slice(None)) -> tuple[float, dict[str, np.ndarray]]:
        loss = trainer.accumulate(
            tokens[chosen], targets[chosen], positions[chosen], [True] * 2, weights=np.repeat(weights, 18).tolist()
        )
        return loss, trainer.gradients()

    alone, alone_gradients = run([1.0], slice(18))
    both, both_gradients = run([2.0, 0.0])
    assert both == pytest.approx(2 * alone, rel=1e-6)
    for name, gradient in alone_gradients.items():
        assert relative_error(both_gradients[name], 2 * gradient) < 1e-4, name
