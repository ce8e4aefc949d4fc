"""The schedules in Python against the runtime's, and both against fixed vectors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.errors import UserError
from mobile_ft.pytorch import Schedule
from mobile_ft.pytorch.selection import allocate_drop_rates
from mobile_ft.runtime import TrainConfig
from mobile_ft.runtime._core import allocate_drop_rates as runtime_drop_rates

VECTORS = json.loads((Path(__file__).parent / "selections.json").read_text())
CASES: list[dict[str, Any]] = [
    {"name": "full"},
    *({"name": "lcsb", "selection": s, "ratio": r} for s in ("random", "contiguous", "strided") for r in (0.25, 0.5)),
    {"name": "suffix"},
    {"name": "suffix", "ratio": 0.1},
    {"name": "suffix", "suffix_depths": (3, 1, 2)},
    {"name": "lisa", "ratio": 0.1, "period": 3},
    {"name": "freeze", "ratio": 0.25},
    {"name": "dropbp"},
    {"name": "dropbp", "ratio": 0.25},
]


def runtime(case: dict[str, Any], steps: int, seed: int) -> TrainConfig:
    options = {name: value for name, value in case.items() if name != "name"}
    if "suffix_depths" in options:
        options["suffix_depths"] = list(options["suffix_depths"])
    return TrainConfig(schedule=case["name"], steps=steps, seed=seed, **options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(value) for value in case.values()))
def test_the_same_as_in_the_runtime(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for seed in (0, 7):
        schedule, config = Schedule(**case, steps=40, seed=seed), runtime(case, 40, seed)
        for count in (3, 12, 60):
            for step in range(40):
                selected = schedule.select(step, count)
                assert selected == config.select(step, count)
                if schedule.drops_units:
                    rates = (rng.integers(0, 10, count) / 10).tolist()
                    assert schedule.select(step, count, rates) == config.select(step, count, rates)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['schedule']['name']}-{v['step']}")
def test_fixed_vectors(vector: dict[str, Any]) -> None:
    """What was selected once stays selected: runs that are resumed with a later version go on the same."""
    case, step, rates = vector["schedule"], vector["step"], vector["drop_rates"]
    expected = [digit == "1" for digit in vector["selected"]]
    options = {name: value for name, value in case.items() if name not in ("steps", "seed")}
    assert Schedule(**case).select(step, len(expected), rates) == expected
    assert runtime(options, case["steps"], case["seed"]).select(step, len(expected), rates or []) == expected


def test_drop_rates_are_the_same() -> None:
    rng = np.random.default_rng(1)
    for target in (0.1, 0.33, 0.5, 0.75, 0.95):
        sensitivities = rng.random(24).tolist()
        flops = [float(1 + 2 * (u % 2)) for u in range(24)]
        ours = allocate_drop_rates(sensitivities, flops, target)
        assert ours == runtime_drop_rates(sensitivities, flops, target)
        share = sum(rate * f for rate, f in zip(ours, flops, strict=True)) / sum(flops)
        assert share >= min(target, 0.9) - 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "half"}, "schedule half: must be one of full, lcsb"),
        ({"ratio": 0}, "ratio 0: must be above 0"),
        ({"period": 0}, "period 0: must be at least 1 step"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Schedule(**options)
    with pytest.raises(UserError, match="suffix depth 4: must be from 1 to 3"):
        Schedule("suffix", suffix_depths=(4,)).select(0, 3)
