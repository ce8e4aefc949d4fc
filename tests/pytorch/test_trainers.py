"""Transformers' Trainer and TRL's SFTTrainer under every schedule, on linears that bitsandbytes holds in 4 bits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from mobile_ft.pytorch import Schedule, apply
from mobile_ft.pytorch.callback import ScheduleCallback
from tests.pytorch.models import make, training_arguments
from tests.small_tokenizer import small_tokenizer

STEPS = 10
SCHEDULES = [
    Schedule("full"),
    Schedule("lcsb", ratio=0.67, seed=1),
    Schedule("suffix"),
    Schedule("lisa", ratio=0.3, period=2),
    Schedule("freeze", ratio=0.3),
    Schedule("dropbp"),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small LLaMA's folder."""
    folder = tmp_path_factory.mktemp("model")
    make("llama")[0].save_pretrained(folder)
    return folder


def rows() -> list[dict[str, Any]]:
    inputs = make("llama")[1]
    return [{"input_ids": inputs["input_ids"][i % 2], "labels": inputs["labels"][i % 2]} for i in range(2 * STEPS)]


def model_of(folder: Path) -> Any:
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    torch.manual_seed(3)
    base = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantization)
    return get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))


class Watch(ScheduleCallback):
    """Remembers at the end of every step which LoRA matrices had a gradient in it."""

    def __init__(self, schedule: Any) -> None:
        super().__init__(schedule)
        self.trained: list[set[str]] = []
        self.selected: list[list[bool]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.scheduled is not None
        named = kwargs["model"].named_parameters()
        self.trained.append({name for name, p in named if p.grad is not None})
        self.selected.append(self.scheduled.selected)


def check(watch: Watch, trainer: Any) -> None:
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == STEPS and min(losses[-3:]) < losses[0]
    assert len(watch.trained) == STEPS
    for step, (trained, selected) in enumerate(zip(watch.trained, watch.selected, strict=True)):
        units = selected if watch.schedule.drops_units else [flag for flag in selected for _ in range(2)]
        for name in trained:
            layer = int(name.partition(".layers.")[2].partition(".")[0])
            assert units[2 * layer + (".mlp." in name)], (step, name)
        # A and B of four linears of attention and three of the MLP.
        assert len(trained) == sum((6 if unit % 2 else 8) * flag for unit, flag in enumerate(units))
    assert (watch.sensitivities is not None) == watch.schedule.drops_units
    assert watch.scheduled is None  # undone at the end


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_trainer(saved: Path, tmp_path: Path, schedule: Schedule, checkpointing: bool) -> None:
    watch = Watch(schedule)
    more = {"gradient_checkpointing": checkpointing}
    trainer = Trainer(
        model_of(saved),
        TrainingArguments(**(training_arguments(tmp_path, STEPS) | more)),
        train_dataset=rows(),
        callbacks=[watch],
    )
    trainer.train()
    check(watch, trainer)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_sft_trainer(saved: Path, tmp_path: Path, schedule: Schedule) -> None:
    """With LowMemoryBP as well."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    watch = Watch(schedule)
    tokenizer = Tokenizer.from_str(small_tokenizer().decode())
    model = model_of(saved)
    applied = apply(model)
    assert (applied.activations, applied.norms) == (3, 7)
    data = Dataset.from_list([{"input_ids": row["input_ids"].tolist()} for row in rows()])
    trainer = SFTTrainer(
        model,
        SFTConfig(**training_arguments(tmp_path, STEPS), max_length=64, bf16=False, gradient_checkpointing=False),
        train_dataset=data,
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>"),
        callbacks=[watch],
    )
    trainer.train()
    check(watch, trainer)
    applied.undo()


def test_an_interrupted_run_leaves_nothing_for_the_next(saved: Path, tmp_path: Path) -> None:
    class Interrupt(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

    watch, interrupt = Watch(Schedule("lisa", ratio=0.3)), Interrupt()
    model = model_of(saved)
    arguments = TrainingArguments(**training_arguments(tmp_path, STEPS))
    trainer = Trainer(model, arguments, train_dataset=rows(), callbacks=[watch, interrupt])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(interrupt)
    trainable = sum(p.requires_grad for p in model_of(saved).parameters())
    watch.trained.clear()
    watch.selected.clear()
    trainer.train()
    check(watch, trainer)
    assert sum(p.requires_grad for p in model.parameters()) == trainable
    assert not any("_mobile_ft_forwards" in module.__dict__ for module in model.modules())


def test_resumed_with_its_sensitivities(saved: Path, tmp_path: Path) -> None:
    """The second half of a run that was saved and resumed selects what the whole run selected."""

    def run(resume: bool, watch: Watch) -> None:
        more = {"save_strategy": "steps", "save_steps": 5, "restore_callback_states_from_checkpoint": True}
        trainer = Trainer(
            model_of(saved),
            TrainingArguments(**(training_arguments(tmp_path, STEPS) | more)),
            train_dataset=rows(),
            callbacks=[watch],
        )
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5") if resume else None)
        watch.selected = next(c for c in trainer.callback_handler.callbacks if isinstance(c, Watch)).selected

    whole, second = Watch(Schedule("dropbp")), Watch(Schedule("dropbp"))
    run(False, whole)
    run(True, second)
    assert whole.sensitivities is not None
    assert second.selected == whole.selected[5:]
