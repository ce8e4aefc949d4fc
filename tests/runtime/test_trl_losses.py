"""Every loss of feedback against TRL's own trainer, on the same weights and rows: the loss and all gradients."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models, pre_tokenizers

from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.runtime.conftest import gradients, relative_error
from tests.runtime.loss_model import ALPHA, RANK, LossModel, loss_model

PAIRS = 4
WORDS = [f"w{i}" for i in range(248)]

Row = tuple[NDArray[Any], NDArray[Any]]  # tokens, and whether each is of the answer


class Step(NamedTuple):
    """A step of TRL."""

    loss: float
    gradients: dict[str, NDArray[Any]]  # under the names of PEFT's files
    rows: list[Row]  # in our order: pairs lie side by side
    labels: list[bool]  # of kto's rows
    metrics: dict[str, list[float]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LossModel:
    return loss_model(tmp_path_factory.mktemp("losses"))


def trl_trainer(name: str) -> tuple[Any, Any]:
    """TRL's trainer and its configuration."""
    import trl
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    others = {"CPO": (CPOTrainer, CPOConfig), "ORPO": (ORPOTrainer, ORPOConfig)}
    return others.get(name) or (getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config"))


def rows_for(name: str, pairs: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)

    def text(n: int) -> str:
        return " ".join(rng.choice(WORDS, n))

    # ORPO of TRL learns the prompt too, all but its first token.
    prompts = [text(1 if name == "ORPO" else 5 + i) for i in range(pairs)]
    answers = [(" " + text(9 - i), " " + text(4 + 2 * i)) for i in range(pairs)]
    if name == "KTO":
        return [
            {"prompt": prompt, "completion": answer, "label": i % 3 != 1}
            for i, (prompt, (answer, _)) in enumerate(zip(prompts, answers, strict=True))
        ]
    return [
        {"prompt": prompt, "chosen": chosen, "rejected": rejected}
        for prompt, (chosen, rejected) in zip(prompts, answers, strict=True)
    ]


def rows_of(batch: dict[str, torch.Tensor]) -> list[Row]:
    """The rows of TRL's batch, without padding."""

    def rows(ids: str, mask: str, learned: NDArray[np.bool_]) -> list[Row]:
        kept = batch[mask].numpy().astype(bool)
        return [(row[keep], flags[keep]) for row, keep, flags in zip(batch[ids].numpy(), kept, learned, strict=True)]

    if "input_ids" in batch:
        found = rows("input_ids", "attention_mask", batch["completion_mask"].numpy().astype(bool))
        if "label" in batch:
            return found
        chosen, rejected = found[: len(found) // 2], found[len(found) // 2 :]
    else:
        chosen, rejected = (
            rows(f"{side}_input_ids", f"{side}_attention_mask", batch[f"{side}_labels"].numpy() != -100)
            for side in ("chosen", "rejected")
        )
    return [row for pair in zip(chosen, rejected, strict=True) for row in pair]


def trl_step(model: LossModel, folder: Path, name: str, options: dict[str, Any], pairs: int) -> Step:
    from datasets import Dataset
    from peft import LoraConfig as PeftConfig
    from peft import set_peft_model_state_dict
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*WORDS, "<pad>", "<eos>"])}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer_class, config_class = trl_trainer(name)
    trainer = trainer_class(
        model=model.base(),
        args=config_class(
            output_dir=str(folder), per_device_train_batch_size=pairs, report_to=[], use_cpu=True, bf16=False, **options
        ),
        train_dataset=Dataset.from_list(rows_for(name, pairs)),
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
    labels = [bool(label) for label in batch["label"]] if "label" in batch else []
    metrics = trainer._metrics["train"] if hasattr(trainer, "_metrics") else {}
    return Step(loss.item(), gradients(peft), rows_of(batch), labels, metrics)


def arrays(rows: list[Row]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Tokens, targets and positions of rows, packed."""
    tokens = [row[:-1] for row, _ in rows]
    targets = [np.where(learned[1:], row[1:], -100) for row, learned in rows]
    positions = [np.arange(len(row) - 1) for row, _ in rows]
    return np.concatenate(tokens), np.concatenate(targets), np.concatenate(positions)


LOSSES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # -> TRL's trainer and options, ours
    "dpo": ("DPO", {"beta": 0.3}, {"beta": 0.3}),
    "dpo, sft": (
        "DPO",
        {"beta": 0.3, "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]},
        {"beta": 0.3, "sft_weight": 0.7},
    ),
    "ipo": ("DPO", {"beta": 0.3, "loss_type": "ipo"}, {"beta": 0.3}),
    "simpo": (
        "CPO",
        {"beta": 1.7, "loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": 0.4, "label_smoothing": 0.2},
        {"beta": 1.7, "simpo_gamma": 0.4, "label_smoothing": 0.2},
    ),
    "simpo, sft": ("CPO", {"loss_type": "simpo", "cpo_alpha": 0.6}, {"sft_weight": 0.6}),
    "orpo": ("ORPO", {"beta": 0.8}, {"beta": 0.8}),
    "kto": ("KTO", {"beta": 0.4}, {"beta": 0.4}),
}


def compare(step: Step, model: LossModel, loss: str, options: dict[str, Any], count: int) -> None:
    config = TrainConfig(seq_len=256, loss=loss, **options)
    trainer = Trainer(Model(str(model.bundle)), config, str(model.adapter))
    tokens, targets, positions = arrays(step.rows)
    lengths = [len(row) - 1 for row, _ in step.rows]
    liked = np.repeat(step.labels, lengths).tolist() if step.labels else []
    ours = trainer.accumulate(tokens, targets, positions, [True] * 2, liked=liked)
    assert ours / count == pytest.approx(step.loss, rel=1e-5)
    found = trainer.gradients()
    assert set(found) == set(step.gradients)
    for name, gradient in step.gradients.items():
        assert relative_error(found[name] / count, gradient) < 1e-4, name


@pytest.mark.parametrize("case", LOSSES)
def test_equals_trl(case: str, model: LossModel, tmp_path: Path) -> None:
    name, theirs, ours = LOSSES[case]
    step = trl_step(model, tmp_path, name, theirs, PAIRS)
    if case == "dpo":
        assert step.loss != pytest.approx(np.log(2), abs=0.01)  # the adapter has made a difference
    if case == "kto":
        assert step.metrics["kl"][0] > 0.01 and any(step.labels) and not all(step.labels)
    compare(step, model, case.split(",")[0], ours, PAIRS)


def test_label_smoothing_of_dpo(model: LossModel, tmp_path: Path) -> None:
    """TRL smooths the loss "aot", which is dpo's if the batch has one pair."""
    step = trl_step(model, tmp_path, "DPO", {"beta": 0.3, "loss_type": "aot", "label_smoothing": 0.2}, 1)
    compare(step, model, "dpo", {"beta": 0.3, "label_smoothing": 0.2}, 1)
