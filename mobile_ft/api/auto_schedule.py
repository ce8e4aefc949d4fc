"""What to train with, from minutes and megabytes: what learned most in such a time, by docs/quality.md's evidence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from mobile_ft.api.native import Event
from mobile_ft.api.options import option_texts, step_options
from mobile_ft.api.plan import Change, native_plans
from mobile_ft.api.results import seconds, whole_megabytes
from mobile_ft.bundle import Bundle
from mobile_ft.data import DataStats
from mobile_ft.errors import UserError
from mobile_ft.runtime import TrainConfig, train_options

CHOSEN = ("schedule", "ratio", "selection", "suffix_depths", "period", "steps", "epochs", "lr", "unselected")


@dataclass(frozen=True)
class Evidence:
    """What a schedule learned of SmolLM2-135M's held-out loss, by steps, on average over three data sets: 1 is what 100
    steps of full backward learn."""

    options: Change
    lr: float
    learned: tuple[tuple[int, float], ...]


# As `tools/quality.py report` tells; the test of that tool compares.
EVIDENCE = {
    "full": Evidence({"schedule": "full"}, 1e-3, ((100, 1.0), (226, 1.0))),
    "freeze": Evidence({"schedule": "freeze", "ratio": 0.25}, 1e-3, ((100, 1.0), (281, 1.0))),
    "suffix 1/2": Evidence({"schedule": "suffix", "ratio": 0.5}, 1e-3, ((100, 1.0), (318, 1.0))),
    "suffix 1/4": Evidence({"schedule": "suffix", "ratio": 0.25}, 2e-3, ((100, 1.0), (435, 1.0))),
}
_WARMUP_STEPS = 5
# Rows that are all targets learned best at half the rate of rows whose answers are.
_MANY_TARGETS, _RATE_OF_MANY = 0.9, 0.5
_MOST_EPOCHS = 4
# Plans promise steps up to 14 % too short.
_SLOWER = 1.15


@dataclass(frozen=True)
class Choice:
    options: Change
    why: list[str]  # lines


@dataclass(frozen=True)
class _Candidate:
    name: str
    optimizer: Change
    plan: Event
    step_seconds: float  # on average over the run
    steps: int

    @property
    def learned(self) -> float:
        return learned(EVIDENCE[self.name], self.steps)

    @property
    def fits(self) -> bool:
        return bool(self.plan["planned_mb"] <= self.plan["budget_mb"])


def choose(bundle: Bundle, given: Mapping[str, str], minutes: float, data: DataStats) -> Choice:
    """Schedule, learning rate and number of steps for a run of so many minutes within the budget that is `given`.

    Raises UserError where an option is given that this chooses, no budget is, or the budget is too small.
    """
    check_choosable(given, minutes)
    batch = int(given.get("batch_size", 1)) * int(given.get("grad_accum", 1))
    most = max(1, math.ceil(_MOST_EPOCHS * data.sequences / batch))
    step_names = {option.name for option in step_options()}
    steps = {name: text for name, text in given.items() if name in step_names}
    ways: list[tuple[str, Change]] = [(name, {}) for name in EVIDENCE]
    if "optimizer" not in given:
        ways += [(name, {"optimizer": "adamw8bit"}) for name in EVIDENCE]
    plans = native_plans(bundle, steps, [EVIDENCE[name].options | optimizer for name, optimizer in ways])[1:]
    candidates = []
    for (name, optimizer), plan in zip(ways, plans, strict=True):
        step = _SLOWER * _share_of_plan(EVIDENCE[name].options, bundle) * plan["step_seconds"]
        candidates.append(_Candidate(name, optimizer, plan, step, max(1, min(most, int(60 * minutes / step)))))
    fitting = [c for c in candidates if c.fits]
    if not fitting:
        smallest = min(plan["smallest_budget_mb"] for plan in plans)
        raise UserError(
            f"budget {given['budget']} is too small for every schedule that is tried: {whole_megabytes(smallest)} MB "
            "is the least; raise --budget, or lower --seq-len or --batch-size"
        )
    # 8-bit moments only where others leave no choice.
    usual = [c for c in fitting if not c.optimizer]
    best = max(usual or fitting, key=lambda c: c.learned)
    options = EVIDENCE[best.name].options | best.optimizer | {"steps": best.steps, "lr": _lr(best.name, data)}
    if not given.keys() & {"warmup_steps", "warmup_ratio"}:
        options["warmup_steps"] = min(_WARMUP_STEPS, best.steps - 1)
    return Choice(options, _why(best, usual or fitting, most, minutes, data))


def learned(evidence: Evidence, steps: int) -> float:
    """Between the steps of the evidence by their logarithm; after the last no more is known to be learned."""
    points = [(0, 0.0), *evidence.learned]
    for (begin, low), (end, high) in zip(points, points[1:], strict=False):
        if steps < end:
            share = (math.log1p(steps) - math.log1p(begin)) / (math.log1p(end) - math.log1p(begin))
            return low + share * (high - low)
    return points[-1][1]


def check_choosable(given: Mapping[str, str], minutes: float) -> None:
    """Raises UserError where there is nothing to choose, or no budget to choose within."""
    if not (math.isfinite(minutes) and minutes > 0):
        raise UserError(f"--auto-schedule {minutes}: how many minutes training may take, more than 0")
    chosen = [name for name in CHOSEN if name in given]
    if chosen:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise UserError(f"--auto-schedule: chooses {names}; leave that out, or --auto-schedule")
    if "budget" not in given:
        raise UserError("--auto-schedule: give --budget too, how much memory training may take")


def _share_of_plan(options: Change, bundle: Bundle) -> float:
    """A run's mean step by its longest, which plans tell, where a backward takes as long as the forward."""
    config = TrainConfig(**option_texts(train_options(), options), steps="100")
    layers = bundle.model.num_hidden_layers
    selected = [sum(config.select(step, layers)) / layers for step in range(100)]
    return (1 + mean(selected)) / (1 + max(selected))


def _lr(name: str, data: DataStats) -> float:
    return EVIDENCE[name].lr * (_RATE_OF_MANY if _full_of_targets(data) else 1)


def _full_of_targets(data: DataStats) -> bool:
    return data.target_tokens > _MANY_TARGETS * data.tokens


def _why(best: _Candidate, candidates: Sequence[_Candidate], most: int, minutes: float, data: DataStats) -> list[str]:
    budget = f"{best.plan['budget_mb']:.0f} MB"
    lines = [f"auto-schedule: what learns most in {minutes:g} minutes and {budget} (1: what 100 steps of full learn)"]
    for c in candidates:
        chosen = "  <- chosen" if c is best else ""
        lines.append(
            f"  {c.name:10}  {seconds(c.step_seconds)} a step  {c.steps:5} steps  learns {c.learned:.2f}{chosen}"
        )
    if best.optimizer:
        lines.append(f"  {budget} leave room for AdamW's moments in 8 bits only")
    if best.steps == most:
        lines.append(f"  {most} steps are {_MOST_EPOCHS} epochs; more were not seen to help")
    if _full_of_targets(data):
        lines.append("  nearly every token is a target, which learned best at half the learning rate")
    units = sum(best.plan["units"].values())
    recomputed = units - sum(best.plan["stored"].values())
    if recomputed:
        lines.append(
            f"  {recomputed} of {units} units recompute their activations; a bundle exported with --activation int8 "
            "would store more of them"
        )
    return lines
