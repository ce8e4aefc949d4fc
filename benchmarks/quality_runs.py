"""The sides and runs of benchmarks/quality.py, and their results.

A side is a configuration of training: a schedule, the arithmetic of linear layers, and the storage of activations.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal, get_args

from mobile_ft.api.files import write_text
from mobile_ft.runtime import TrainConfig

Options = dict[str, Any]
Storage = Literal["exact", "int8", "approx2bit"]

SEEDS = (1, 2, 3)
LEARNING_RATES = (1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
LR_SCALE = {"gsm8k": 1.0, "wikitext2": 0.5, "dialogues": 1.0}  # in WikiText-2, every token is a target
DATA = tuple(LR_SCALE)
STEPS, LONG_STEPS = 100, 600
# Budget in MB -> options that are needed to fit: 8-bit AdamW, whose loss is measured separately.
BUDGETS: dict[int, Options] = {100: {"optimizer": "adamw8bit"}, 200: {}, 400: {}}
TIMED_BUDGET = 200  # budget at which steps are timed for comparisons


@dataclass(frozen=True)
class Side:
    options: Options = field(default_factory=dict)
    storage: Storage = "exact"  # export's `activation`
    data: str = ""  # other rows to train on
    adapter: Options = field(default_factory=dict)  # export's options of LoRA


FULL = "full"
SCHEDULES: dict[str, Options] = {
    FULL: {},
    "suffix 1/2": {"schedule": "suffix", "ratio": 0.5},
    "suffix 1/4": {"schedule": "suffix", "ratio": 0.25},
    "lcsb 1/2 random": {"schedule": "lcsb", "ratio": 0.5},
    "lcsb 1/2 random, skip": {"schedule": "lcsb", "ratio": 0.5, "unselected": "skip"},
    "lcsb 1/2 contiguous": {"schedule": "lcsb", "ratio": 0.5, "selection": "contiguous"},
    "lcsb 1/2 strided": {"schedule": "lcsb", "ratio": 0.5, "selection": "strided"},
    "lcsb 1/4 random": {"schedule": "lcsb", "ratio": 0.25},
    "lcsb 1/4 contiguous": {"schedule": "lcsb", "ratio": 0.25, "selection": "contiguous"},
    "lcsb 1/4 strided": {"schedule": "lcsb", "ratio": 0.25, "selection": "strided"},
    "dropbp 0.5": {"schedule": "dropbp", "ratio": 0.5},
    "dropbp 0.75": {"schedule": "dropbp", "ratio": 0.25},
    "lisa": {"schedule": "lisa", "ratio": 0.1},
    "freeze 1/2": {"schedule": "freeze", "ratio": 0.5},
    "freeze 1/4": {"schedule": "freeze", "ratio": 0.25},
}
BEST = (FULL, "freeze 1/2", "freeze 1/4")  # for which compute and storage are varied
SMALL = ("suffix 1/2", "suffix 1/4")  # schedules that fit smaller budgets
SECOND = (*BEST, "suffix 1/2", "lcsb 1/2 random", "dropbp 0.5")  # schedules that are measured on other models too
LONG = (*BEST, "lcsb 1/2 random", "dropbp 0.5", "suffix 1/2", "lcsb 1/4 random", "dropbp 0.75", "lisa")
# Negative controls of the quality bar, all of which must fail: almost no gradient, answers of other questions, and a
# schedule that trains the same half at every step.
UNTRAINED = "control: zero gradients"
CONTROLS = {
    UNTRAINED: Side({"max_grad_norm": 1e-12}),
    "control: shuffled targets": Side(data="shuffled"),
    "control: the same half": Side({"schedule": "suffix", "suffix_depths": "15"}),
}


# LoRA of other ranks and scales, for which learning rates are tuned.
ADAPTERS: dict[str, Options] = {
    "rank 4": {"lora_rank": 4},
    "rank 64": {"lora_rank": 64},
    "rank 64, rsLoRA": {"lora_rank": 64, "use_rslora": True},
    "alpha 8": {"lora_alpha": 8},
    "alpha 128": {"lora_alpha": 128},
}


def variant(schedule: str, compute: str = "int8", storage: Storage = "exact") -> str:
    """Returns the name of a side, without its default settings."""
    computed = "" if compute == "int8" else f", {compute}"
    return schedule + computed + ("" if storage == "exact" else f", {storage} stored")


REFERENCE = variant(FULL, "float32")
VARIANTS = {
    variant(schedule, compute, storage): Side(SCHEDULES[schedule] | {"compute": compute}, storage)
    for schedule in BEST
    for compute in ("float32", "int8")
    for storage in get_args(Storage)
    if (compute, storage) != ("int8", "exact")
}
VARIANTS |= {variant(small, storage="int8"): Side(SCHEDULES[small] | {"compute": "int8"}, "int8") for small in SMALL}
VARIANTS[f"{FULL}, adamw8bit"] = Side({"compute": "int8", "optimizer": "adamw8bit"})
SIDES = {name: Side({"compute": "int8"} | options) for name, options in SCHEDULES.items()} | VARIANTS
SIDES |= {name: Side({"compute": "int8"} | side.options, data=side.data) for name, side in CONTROLS.items()}
ADAPTED = {f"{FULL}, {name}": Side({"compute": "int8"}, adapter=options) for name, options in ADAPTERS.items()}
SIDES |= ADAPTED
# The recommended sides at half and at a quarter of the reference's cost are measured with three seeds.
HEADLINE = (REFERENCE, *(variant(schedule, storage="int8") for schedule in BEST))
ADVISED = (*HEADLINE, *(variant(schedule, storage="int8") for schedule in SMALL))
# The timed sides and budgets in MB: all sides at one budget, and those in the picture at all budgets.
TIMED = [(side, TIMED_BUDGET) for side in {REFERENCE: None} | SCHEDULES | VARIANTS]
TIMED += [(side, budget) for budget in BUDGETS if budget != TIMED_BUDGET for side in dict.fromkeys(LONG + ADVISED)]
STABILITY_RATES = (8e-3, 1.6e-2, 3.2e-2)
SHORT_STEPS = 25


@dataclass(frozen=True)
class Run:
    """A training run. Its name is its key in the results."""

    data: str
    side: str
    lr: float
    steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}/{self.side}/{self.lr:g}/{self.steps}/{self.seed}"


class Results:
    """The JSON file of a model: its size, held-out losses and correct answers by run, seconds per step by side and
    budget, the numbers of steps with equal time, which are kept so that their runs can be compared, and the rates of
    `--lr auto`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.size: dict[str, int] = known.get("size", {})
        self.losses: dict[str, float] = known.get("losses", {})
        self.right: dict[str, list[int]] = known.get("right", {})  # correct answers, and all answers
        self.seconds: dict[str, list[float]] = known.get("seconds", {})
        self.measuring: dict[str, list[float]] = known.get(
            "measuring", {}
        )  # seconds of measuring dropbp's sensitivities
        self.steps: dict[str, int] = known.get("steps", {})
        self.auto: dict[str, float] = known.get("auto", {})  # learning rate of `--lr auto`, by side

    def save(self) -> None:
        names = ("size", "losses", "right", "seconds", "measuring", "steps", "auto")
        values = {name: getattr(self, name) for name in names}
        write_text(self._path, json.dumps(values, indent=1, sort_keys=True) + "\n")

    def best_lr(self, side: str, steps: int = STEPS) -> float:
        """Returns the learning rate with the lowest loss of the side's schedule on the tuning rows after this number of
        steps, or after STEPS if that was not run. Controls use that of full. Returns 1e-3 if nothing was run."""
        schedule = max((name for name in SCHEDULES if side.startswith(name)), key=len, default=FULL)
        for count in (steps, STEPS):
            tried = {lr: self.losses.get(Run("tuning", schedule, lr, count, 1).name) for lr in LEARNING_RATES}
            found = {lr: loss for lr, loss in tried.items() if loss is not None}
            if found:
                return min(found, key=lambda lr: found[lr])
        return 1e-3

    def step_seconds(self, side: str, budget: int = TIMED_BUDGET) -> float:
        return median(self.seconds[timing(side, budget)])

    def run_seconds(self, side: str, steps: int, budget: int = TIMED_BUDGET) -> float:
        """Returns the time of this number of steps, including the measurement of sensitivities."""
        return steps * self.step_seconds(side, budget) + median(self.measuring.get(timing(side, budget), [0.0]))

    def steps_in_time(self, side: str, reference: str, steps: int = STEPS) -> int:
        """Returns the number of steps of a side in the time of `steps` steps of the reference. The first result is
        kept."""
        name = f"{side} in {steps} of {reference}"
        if name not in self.steps:
            left = self.run_seconds(reference, steps) - self.run_seconds(side, 0)
            self.steps[name] = max(1, round(left / self.step_seconds(side)))
        return self.steps[name]

    def timed(self, *sides: str) -> bool:
        """Whether all sides are timed."""
        return all(timing(side, TIMED_BUDGET) in self.seconds for side in sides)

    def run(self, data: str, side: str, steps: int, seed: int) -> Run:
        return Run(data, side, self.best_lr(side, steps) * LR_SCALE[data], steps, seed)

    def mean_loss(self, data: str, side: str, steps: int, seeds: tuple[int, ...] = SEEDS) -> float | None:
        """Returns the mean loss over the available seeds, or None."""
        names = [self.run(data, side, steps, seed).name for seed in seeds]
        found = [self.losses[name] for name in names if name in self.losses]
        return mean(found) if found else None

    def learned(self, schedule: str, steps: int) -> float | None:
        """Returns the loss reduction relative to full backward in STEPS, averaged over data sets, for seed 1; both in
        int8 with int8 storage."""
        shares = []
        for data in DATA:
            losses = [
                self.mean_loss(data, side, n, (1,))
                for side, n in (
                    (UNTRAINED, STEPS),
                    (variant(FULL, storage="int8"), STEPS),
                    (variant(schedule, storage="int8"), steps),
                )
            ]
            known = [loss for loss in losses if loss is not None]
            if len(known) < len(losses):
                return None
            before, full, after = known
            shares.append((before - after) / (before - full))
        return mean(shares)

    def seeds(self, data: str, side: str, steps: int) -> tuple[int, ...]:
        return tuple(seed for seed in SEEDS if self.run(data, side, steps, seed).name in self.losses)


def timing(side: str, budget: int) -> str:
    return f"{side} at {budget} MB"


def backward_share(side: str, layers: int, steps: int = STEPS) -> float:
    """Returns the fraction of layers with a backward, averaged over a run; for dropbp, the fraction of units."""
    config = TrainConfig(**{k: str(v) for k, v in SIDES[side].options.items()}, steps=str(steps))
    shares = []
    for step in range(steps):
        selected = config.select(step, layers)
        through = layers - selected.index(True) if SIDES[side].options.get("schedule") == "lisa" else sum(selected)
        shares.append(through / layers)
    return mean(shares)


def operations(side: str, size: dict[str, int]) -> float:
    """Returns the operations of a step relative to full backward, in which forward and backward have the same
    number."""
    layers, head = size["layers"] * size["layer_weights"], size["head_weights"]
    return (layers * (1 + backward_share(side, size["layers"])) + 2 * head) / (2 * layers + 2 * head)


def runs_of(phase: str, results: Results) -> Iterator[Run]:
    """Yields the runs of a phase that trains, the most important first."""
    if phase == "tune":
        for lr in LEARNING_RATES:
            yield from (Run("tuning", side, lr, STEPS, 1) for side in SCHEDULES)
    elif phase == "tune-longer":
        for lr in LEARNING_RATES[2:5]:
            for schedule in (*BEST, *SMALL):
                steps = results.steps_in_time(variant(schedule, storage="int8"), REFERENCE)
                yield Run("tuning", schedule, lr, steps, 1)
    elif phase == "steps":
        for seed in SEEDS:
            sides = ADVISED if seed == SEEDS[0] else HEADLINE
            yield from (results.run(data, side, STEPS, seed) for data in DATA for side in sides)
        yield from (results.run(data, side, STEPS, 1) for data in DATA for side in SCHEDULES)
        yield from (results.run("gsm8k", side, STEPS, 1) for side in VARIANTS)
    elif phase == "time":
        for seed in SEEDS:
            for data in DATA:
                for side in ADVISED if seed == SEEDS[0] else HEADLINE:
                    yield results.run(data, side, results.steps_in_time(side, REFERENCE), seed)
        for data in DATA:
            for side in SCHEDULES:
                yield results.run(data, side, results.steps_in_time(side, FULL), 1)
    elif phase == "operations":
        for side in SCHEDULES:
            yield results.run("gsm8k", side, round(STEPS / operations(side, results.size)), 1)
    elif phase == "long":
        yield from (results.run("gsm8k", side, LONG_STEPS, 1) for side in LONG)
    elif phase == "controls":
        yield from (results.run("gsm8k", side, STEPS, 1) for side in CONTROLS)
        yield from (results.run(data, UNTRAINED, STEPS, 1) for data in DATA)
    elif phase == "rates":
        for data in DATA:
            yield from (Run(data, FULL, lr, STEPS, 1) for lr in LEARNING_RATES)
        for lr in LEARNING_RATES:
            yield from (Run(data, FULL, lr, SHORT_STEPS, 1) for data in DATA)
            yield from (Run("gsm8k", side, lr, STEPS, 1) for side in ADAPTED)
        yield from (Run(data, FULL, results.auto[FULL], n, 1) for n in (STEPS, SHORT_STEPS) for data in DATA)
        yield from (Run("gsm8k", side, results.auto[side], STEPS, 1) for side in ADAPTED)
    elif phase == "second":
        for lr in LEARNING_RATES[1:4]:
            yield from (Run("tuning", schedule, lr, STEPS, 1) for schedule in SECOND)
        for seed in SEEDS:
            yield from (results.run(data, side, STEPS, seed) for data in DATA for side in (REFERENCE, FULL))
            if seed == SEEDS[0]:
                yield from (results.run(data, side, STEPS, seed) for side in SECOND for data in DATA)
    elif phase == "stability":
        for lr in STABILITY_RATES:
            yield from (Run("tuning", side, lr, STEPS, 1) for side in (FULL, "lcsb 1/2 random"))
