"""Chooses training options for a time limit and a memory budget, by the measurements in docs/quality.md."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from mobile_ft.api.native import Event
from mobile_ft.api.options import option_texts, step_options
from mobile_ft.api.plan import Change, native_plans
from mobile_ft.api.results import seconds, whole_megabytes
from mobile_ft.bundle.description import Bundle
from mobile_ft.data.prepare import DataStats
from mobile_ft.errors import UserError
from mobile_ft.runtime import TrainConfig, train_options

# CHOSEN: the options that this module chooses. RESOLVED: options that an earlier run resolved for its own schedule.
CHOSEN = ("schedule", "ratio", "selection", "suffix_depths", "period", "steps", "epochs", "unselected")
RESOLVED = ("cache_prefix", "stored_units", "mlp_tokens", "warmup_steps", "warmup_ratio", "arithmetic")


@dataclass(frozen=True)
class Evidence:
    """How much a schedule reduced SmolLM2-135M's held-out loss, by number of steps.

    `learned` has (steps, reduction), averaged over three data sets. A reduction of 1 is that of 100 steps of `full`.
    """

    options: Change
    learned: tuple[tuple[int, float], ...]


# Copied from `benchmarks/quality.py report`; a test of that tool compares them.
EVIDENCE = {
    "full": Evidence({"schedule": "full"}, ((100, 1.0), (226, 1.105))),
    "freeze 1/2": Evidence({"schedule": "freeze", "ratio": 0.5}, ((100, 0.928), (328, 1.088))),
    "freeze 1/4": Evidence({"schedule": "freeze", "ratio": 0.25}, ((100, 0.831), (396, 1.052))),
    "suffix 1/2": Evidence({"schedule": "suffix", "ratio": 0.5}, ((100, 0.888), (318, 1.059))),
    "suffix 1/4": Evidence({"schedule": "suffix", "ratio": 0.25}, ((100, 0.8), (435, 0.944))),
}
_MOST_EPOCHS = 2  # more epochs showed no benefit
# Planned step times were up to 14 % too short.
_SLOWER = 1.15


@dataclass(frozen=True)
class Choice:
    options: Change
    why: list[str]  # explanation, in lines


@dataclass(frozen=True)
class Candidate:
    """A schedule with its optimizer, and the number of steps that it can do within the time limit."""

    name: str
    optimizer: Change
    plan: Event
    step_seconds: float  # on average over the run
    steps: int


def choose(bundle: Bundle, given: Mapping[str, str], minutes: float, data: DataStats) -> Choice:
    """Chooses schedule and number of steps for a run of `minutes` within the budget in `given`.

    Raises UserError if the budget or the time limit is too small.
    """
    candidates = _candidates(bundle, given, minutes)
    if all(c.steps == 0 for c in candidates):
        least = min(c.step_seconds for c in candidates)
        raise UserError(f"auto_schedule {minutes:g}: the time limit is shorter than one step ({seconds(least)})")
    per_step = int(given.get("batch_size", 1)) * int(given.get("grad_accum", 1))
    most = max(1, _MOST_EPOCHS * data.sequences // per_step)
    reached = {c.name: min(most, c.steps) for c in candidates}
    shares = learned(reached)
    best = max(candidates, key=lambda c: shares[c.name])
    steps = reached[best.name]
    options = EVIDENCE[best.name].options | best.optimizer | {"steps": steps}
    budget = f"{best.plan['budget_mb']:.0f} MB"
    why = [f"auto-schedule: estimated loss reduction in {minutes:g} min and {budget}, relative to 100 steps of full"]
    for c in candidates:
        chosen = "  <- chosen" if c is best else ""
        why.append(
            f"  {c.name:10}  {seconds(c.step_seconds)} per step  {reached[c.name]:5} steps  "
            f"reduction {shares[c.name]:.2f}{chosen}"
        )
    return Choice(options, why + _remarks(best, given, steps == most, budget, bundle))


def check_choosable(given: Mapping[str, str], minutes: float) -> None:
    """Raises UserError if the options are already given, the budget is missing, or the loss has no measurements."""
    if not (isinstance(minutes, int | float) and math.isfinite(minutes) and minutes > 0):
        raise UserError(f"auto_schedule {minutes}: must be a positive number of minutes")
    chosen = [name for name in (*CHOSEN, "stored_units") if name in given]
    chosen += ["cache_prefix"] if given.get("cache_prefix") == "true" else []
    if chosen:
        names = ", ".join(chosen)
        raise UserError(
            f"auto_schedule sets {names}; remove {'it' if len(chosen) == 1 else 'them'}, or remove auto_schedule"
        )
    if not given.get("budget"):
        raise UserError("auto_schedule: requires budget")
    if given.get("loss", "sft") != "sft":
        raise UserError(f"auto_schedule: supports loss sft only, not {given['loss']}")


def learned(steps: Mapping[str, int]) -> dict[str, float]:
    """Estimates the loss reduction of each schedule after its number of steps, interpolated over log(steps).

    If a schedule has more steps than were measured, all schedules are scaled down by the same factor. This assumes that
    the order of the schedules does not change beyond the measurements.
    """
    beyond = max(n / EVIDENCE[name].learned[-1][0] for name, n in steps.items())
    return {name: _learned(EVIDENCE[name], n / max(1.0, beyond)) for name, n in steps.items()}


def _learned(evidence: Evidence, steps: float) -> float:
    points = [(0, 0.0), *evidence.learned]
    for (begin, low), (end, high) in zip(points, points[1:], strict=False):
        if steps < end:
            share = (math.log1p(steps) - math.log1p(begin)) / (math.log1p(end) - math.log1p(begin))
            return low + share * (high - low)
    return points[-1][1]


def _candidates(bundle: Bundle, given: Mapping[str, str], minutes: float) -> list[Candidate]:
    """Returns all schedules that fit the budget. Uses 8-bit AdamW only if nothing fits with float32 moments."""
    names = {option.name for option in step_options()}
    settings = {name: text for name, text in given.items() if name in names}
    optimizers: list[Change] = [{}] if "optimizer" in given else [{}, {"optimizer": "adamw8bit"}]
    least = math.inf
    for optimizer in optimizers:
        plans = native_plans(bundle, settings, [e.options | optimizer for e in EVIDENCE.values()])[1:]
        shares = [_backward_shares(e.options, bundle) for e in EVIDENCE.values()]
        known = sorted((max(share), plan["step_seconds"]) for share, plan in zip(shares, plans, strict=True))
        found = []
        for name, share, plan in zip(EVIDENCE, shares, plans, strict=True):
            # 1 MB of tolerance, because the size of code and heap varies by some pages between processes.
            if plan["smallest_budget_mb"] + 1 <= plan["budget_mb"]:
                step = _SLOWER * _between(known, mean(share))
                found.append(Candidate(name, optimizer, plan, step, int(min(1e9, 60 * minutes / step))))
        if found:
            return found
        least = min(least, *(plan["smallest_budget_mb"] for plan in plans))
    raise UserError(
        f"budget {given['budget']} is too small for all schedules of auto_schedule; the smallest that works is "
        f"{whole_megabytes(least)} MB; raise budget, or lower seq_len or batch_size"
    )


def _backward_shares(options: Change, bundle: Bundle) -> list[float]:
    """Returns the fraction of layers with a backward pass, for each of 100 steps. A plan has the time of the
    longest."""
    config = TrainConfig(**option_texts(train_options(), options), steps="100")
    layers = bundle.model.num_hidden_layers
    return [sum(config.select(step, layers)) / layers for step in range(100)]


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Interpolates linearly between points in order of x. Beyond the ends, the value of the end point is used."""
    before = [point for point in points if point[0] <= x]
    after = [point for point in points if point[0] >= x]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 if x1 == x0 else y0 + (x - x0) / (x1 - x0) * (y1 - y0)


def _remarks(best: Candidate, given: Mapping[str, str], all_epochs: bool, budget: str, bundle: Bundle) -> list[str]:
    lines = []
    if best.optimizer:
        lines.append(f"  {budget} has room only for 8-bit AdamW (adamw8bit)")
    if all_epochs:
        lines.append(f"  limited to {_MOST_EPOCHS} epochs")
    recomputes = any(best.plan["stored"][group] < units for group, units in best.plan["units"].items())
    if recomputes and bundle.activation == "exact" and given.get("backward", "auto") == "auto":
        lines.append("  activations are recomputed; a bundle exported with activation int8 could store more of them")
    return lines
