"""What benchmarks/quality.py compares: sides, runs of them, and what is known of each.

A side is a way to train: a schedule, what its linear layers compute in, and what its layers store.
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
LEARNING_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3)
LR_SCALE = {"gsm8k": 1.0, "wikitext2": 0.5, "dialogues": 1.0}  # WikiText-2's rows are full of targets
DATA = tuple(LR_SCALE)
STEPS, LONG_STEPS = 100, 600
LAYERS = 30
LAYER_WEIGHTS, HEAD_WEIGHTS = 3.54e6, 28.3e6  # SmolLM2-135M's, for the share of operations
# In MB, and what it takes to fit: AdamW's moments in 8 bits, whose loss is measured beside.
BUDGETS: dict[int, Options] = {100: {"optimizer": "adamw8bit"}, 200: {}, 400: {}}
TIMED_BUDGET = 200  # at which steps are timed where times are compared


@dataclass(frozen=True)
class Side:
    options: Options = field(default_factory=dict)
    storage: Storage = "exact"  # export's `activation`
    data: str = ""  # other rows to train on


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
BEST = (FULL, "freeze 1/2", "freeze 1/4")  # on which compute and storage are varied
SMALL = ("suffix 1/2", "suffix 1/4")  # what fits where those do not
LONG = (*BEST, "lcsb 1/2 random", "dropbp 0.5", "suffix 1/2", "lcsb 1/4 random", "dropbp 0.75", "lisa")
# Of the quality bar, which each must miss: no gradient to speak of, answers of other questions, and a schedule that
# trains the same half at every step.
UNTRAINED = "control: zero gradients"
CONTROLS = {
    UNTRAINED: Side({"max_grad_norm": 1e-12}),
    "control: shuffled targets": Side(data="shuffled"),
    "control: the same half": Side({"schedule": "suffix", "suffix_depths": "15"}),
}


def variant(schedule: str, compute: str = "int8", storage: Storage = "exact") -> str:
    """The name of a side, of which what is usual is left out."""
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
# What is recommended at half and at a quarter of the reference's cost stands on three seeds.
HEADLINE = (REFERENCE, *(variant(schedule, storage="int8") for schedule in BEST))
ADVISED = (*HEADLINE, *(variant(schedule, storage="int8") for schedule in SMALL))
# What is timed, with budgets in MB: everything at one budget, what the picture shows at all.
TIMED = [(side, TIMED_BUDGET) for side in {REFERENCE: None} | SCHEDULES | VARIANTS]
TIMED += [(side, budget) for budget in BUDGETS if budget != TIMED_BUDGET for side in dict.fromkeys(LONG + ADVISED)]
STABILITY_RATES = (8e-3, 1.6e-2, 3.2e-2)


@dataclass(frozen=True)
class Run:
    """One run of training. Its name is its key in the results."""

    data: str
    side: str
    lr: float
    steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}/{self.side}/{self.lr:g}/{self.steps}/{self.seed}"


class Results:
    """The JSON file: held-out losses and right answers by the names of runs, seconds a step by side and budget, and the
    steps that were found to take equal time, which stay so that runs of them can be compared."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.losses: dict[str, float] = known.get("losses", {})
        self.right: dict[str, list[int]] = known.get("right", {})  # and of how many
        self.seconds: dict[str, list[float]] = known.get("seconds", {})
        self.measuring: dict[str, list[float]] = known.get("measuring", {})  # dropbp's sensitivities
        self.steps: dict[str, int] = known.get("steps", {})

    def save(self) -> None:
        names = ("losses", "right", "seconds", "measuring", "steps")
        values = {name: getattr(self, name) for name in names}
        write_text(self._path, json.dumps(values, indent=1, sort_keys=True) + "\n")

    def best_lr(self, side: str, steps: int = STEPS) -> float:
        """The learning rate of the lowest loss of the side's schedule on the rows for tuning, after so many steps, or
        STEPS where those were not tried; of controls, full's. 1e-3 where nothing was tried."""
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
        """Of so many steps, measuring sensitivities included."""
        return steps * self.step_seconds(side, budget) + median(self.measuring.get(timing(side, budget), [0.0]))

    def steps_in_time(self, side: str, reference: str, steps: int = STEPS) -> int:
        """How many steps a side makes in the time of so many of the reference's, as timed when first asked."""
        name = f"{side} in {steps} of {reference}"
        if name not in self.steps:
            left = self.run_seconds(reference, steps) - self.run_seconds(side, 0)
            self.steps[name] = max(1, round(left / self.step_seconds(side)))
        return self.steps[name]

    def timed(self, *sides: str) -> bool:
        """Whether all of them are."""
        return all(timing(side, TIMED_BUDGET) in self.seconds for side in sides)

    def run(self, data: str, side: str, steps: int, seed: int) -> Run:
        return Run(data, side, self.best_lr(side, steps) * LR_SCALE[data], steps, seed)

    def mean_loss(self, data: str, side: str, steps: int, seeds: tuple[int, ...] = SEEDS) -> float | None:
        """Over the seeds that there are; None where none is."""
        names = [self.run(data, side, steps, seed).name for seed in seeds]
        found = [self.losses[name] for name in names if name in self.losses]
        return mean(found) if found else None

    def learned(self, schedule: str, steps: int) -> float | None:
        """Of what full backward learns in STEPS, on average over data sets, seed 1; both int8, with int8 stored."""
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


def backward_share(side: str, steps: int = STEPS) -> float:
    """Of the layers, those that gradients pass through, on average over a run; units of dropbp, by their number."""
    config = TrainConfig(**{k: str(v) for k, v in SIDES[side].options.items()}, steps=str(steps))
    shares = []
    for step in range(steps):
        selected = config.select(step, LAYERS)
        through = LAYERS - selected.index(True) if SIDES[side].options.get("schedule") == "lisa" else sum(selected)
        shares.append(through / LAYERS)
    return mean(shares)


def operations(side: str) -> float:
    """Of a step, those of full backward being 1: a forward and a backward of layers and head, as many each."""
    layers = LAYERS * LAYER_WEIGHTS
    return (layers * (1 + backward_share(side)) + 2 * HEAD_WEIGHTS) / (2 * layers + 2 * HEAD_WEIGHTS)


def runs_of(phase: str, results: Results) -> Iterator[Run]:
    """Of a phase that trains; the most telling first."""
    if phase == "tune":
        for lr in LEARNING_RATES:
            yield from (Run("tuning", side, lr, STEPS, 1) for side in SCHEDULES)
    elif phase == "tune-longer":
        for lr in LEARNING_RATES[1:4]:
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
            yield results.run("gsm8k", side, round(STEPS / operations(side)), 1)
    elif phase == "long":
        yield from (results.run("gsm8k", side, LONG_STEPS, 1) for side in LONG)
    elif phase == "controls":
        yield from (results.run("gsm8k", side, STEPS, 1) for side in CONTROLS)
        yield from (results.run(data, UNTRAINED, STEPS, 1) for data in DATA)
    elif phase == "stability":
        for lr in STABILITY_RATES:
            yield from (Run("tuning", side, lr, STEPS, 1) for side in (FULL, "lcsb 1/2 random"))
