"""Weighted targets against PyTorch, and DPO against TRL's own trainer, on the same weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers

from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.hf_models import FAMILIES, HfModel, random_model
from tests.runtime.conftest import gradients, relative_error
from tests.runtime.native import events
from tests.targets import ALL_LINEAR

RANK, ALPHA, BETA = 3, 6.0, 0.3


class Pair(NamedTuple):
    bundle: Path
    adapter: Path
    base: Callable[[], Any]  # a fresh Transformers model of the same weights, float64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("losses")
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

    return Pair(folder / "bundle", folder / "adapter", fresh)


def test_weighted_targets(model: Pair) -> None:
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


def trl_step(model: Pair, folder: Path) -> tuple[float, dict[str, np.ndarray], dict[str, torch.Tensor]]:
    """TRL's loss of a batch of four pairs, its gradients under the names of PEFT's files, and the batch."""
    from datasets import Dataset
    from peft import LoraConfig as PeftConfig
    from peft import set_peft_model_state_dict
    from transformers import PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer

    words = [f"w{i}" for i in range(248)]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*words, "<pad>", "<eos>"])}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    rng = np.random.default_rng(3)

    def text(n: int) -> str:
        return " ".join(rng.choice(words, n))

    rows = [{"prompt": text(5 + i), "chosen": " " + text(9 - i), "rejected": " " + text(4 + 2 * i)} for i in range(4)]
    trainer = DPOTrainer(
        model=model.base(),
        args=DPOConfig(
            output_dir=str(folder), beta=BETA, per_device_train_batch_size=4, report_to=[], use_cpu=True, bf16=False
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
        peft_config=PeftConfig(r=RANK, lora_alpha=int(ALPHA), target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    assert trainer.model is not None
    peft = trainer.model.double().train()
    state = load_file(model.adapter / "adapter_model.safetensors")
    set_peft_model_state_dict(peft, {name: torch.from_numpy(x).double() for name, x in state.items()})
    batch = next(iter(trainer.get_train_dataloader()))
    loss = trainer.compute_loss(peft, batch)
    loss.backward()
    return loss.item(), gradients(peft), batch


def test_dpo_equals_trl(model: Pair, tmp_path: Path) -> None:
    expected, theirs, batch = trl_step(model, tmp_path)
    ids, mask = batch["input_ids"].numpy(), batch["attention_mask"].numpy().astype(bool)
    learned = batch["completion_mask"].numpy().astype(bool)
    pairs = len(ids) // 2
    tokens: list[int] = []
    targets: list[int] = []
    positions: list[int] = []
    for i in range(pairs):
        for row in (i, i + pairs):  # chosen, then rejected
            places = mask[row].sum() - 1
            tokens += ids[row, :places].tolist()
            targets += np.where(learned[row, 1 : places + 1], ids[row, 1 : places + 1], -100).tolist()
            positions += range(places)
    config = TrainConfig(seq_len=256, loss="dpo", beta=BETA)
    trainer = Trainer(Model(str(model.bundle)), config, str(model.adapter))
    loss = trainer.accumulate(np.array(tokens), np.array(targets), np.array(positions), [True] * 2)
    assert expected != pytest.approx(np.log(2), abs=0.01)  # the adapter has made a difference
    assert loss / pairs == pytest.approx(expected, rel=1e-5)
    ours = trainer.gradients()
    assert set(ours) == set(theirs)
    for name, gradient in theirs.items():
        assert relative_error(ours[name] / pairs, gradient) < 1e-4, name


def preference_file(path: Path, pairs: int, seed: int) -> Path:
    """Pairs that differ in one habit: chosen answers count up, rejected ones repeat a token."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(seed)
    tokens, targets, positions, offsets = [], [], [], [0]
    for _ in range(pairs):
        prompt = rng.integers(0, 100, 4)
        start = rng.integers(100, 200)
        for answer in (start + np.arange(8), np.full(8, start)):
            row = np.concatenate([prompt, answer])
            tokens.append(row[:-1])
            targets.append(np.where(np.arange(11) >= 3, row[1:], -100))
            positions.append(np.arange(11))
        offsets.append(offsets[-1] + 22)
    arrays = {"tokens": tokens, "targets": targets, "positions": positions}
    tensors = {name: np.concatenate(parts).astype(np.int32) for name, parts in arrays.items()}
    save_file(tensors | {"offsets": np.array(offsets)}, path, metadata={"rows": "pairs"})
    return path


def test_dpo_learns_what_is_preferred(model: Pair, tmp_path: Path) -> None:
    train, valid = (preference_file(tmp_path / f"{i}.tokens", n, i) for i, n in ((0, 200), (1, 20)))
    run = ["train", model.bundle, "--data", train, "--valid", valid, "--loss", "dpo", "--seq-len", 64, "--steps", 150]
    run += ["--batch-size", 2, "--lr", 1e-2, "--eval-every", 25, "--out", tmp_path / "out"]
    *all_events, done = events(*run)
    steps = [event for event in all_events if event["event"] == "step"]
    evals = [event for event in all_events if event["event"] == "eval"]
    assert steps[0]["loss"] == pytest.approx(np.log(2), abs=1e-6)  # the adapter starts as nothing
    assert steps[0]["reward_margin"] == pytest.approx(0, abs=1e-6)
    assert np.mean([step["reward_margin"] for step in steps[-20:]]) > 0.5
    assert evals[-1]["reward_accuracy"] >= 0.9
    assert evals[-1]["loss"] < evals[0]["loss"] < np.log(2)
    margins = [event["reward_margin"] for event in evals]
    assert margins == sorted(margins)
    assert done["peak_anon_mb"] <= done["planned_anon_mb"]
    assert json.loads(json.dumps(done))["best_loss"] == evals[-1]["loss"]


def test_a_pair_weighs_what_it_is_given(model: Pair) -> None:
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
