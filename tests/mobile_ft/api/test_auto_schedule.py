"""`train --auto-schedule`: what it chooses, why, and when it refuses."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mobile_ft
from mobile_ft.api import auto_schedule
from mobile_ft.api.auto_schedule import EVIDENCE, Choice, Evidence, choose, learned
from mobile_ft.api.options import option_texts
from mobile_ft.api.run_file import read_run_file
from mobile_ft.bundle.description import Bundle, read_bundle
from mobile_ft.data.prepare import DataStats
from mobile_ft.runtime import train_options
from tests.mobile_ft.conftest import Cli

ROWS = [{"prompt": f"{i}+{i}?", "completion": f"{2 * i}, sir"} for i in range(40)]
ANSWERS = DataStats(rows=5000, sequences=5000, tokens=320_000, target_tokens=100_000, truncated=0, dropped=0)
# Full learns more a step, the others more a second for a while.
CURVES = {
    "full": Evidence({"schedule": "full"}, ((100, 1.0), (200, 1.2))),
    "freeze": Evidence({"schedule": "freeze", "ratio": 0.25}, ((100, 0.7), (800, 0.9))),
    "suffix 1/2": Evidence({"schedule": "suffix", "ratio": 0.5}, ((100, 0.8), (800, 1.0))),
}
SECONDS = {"full": 1.0, "freeze": 1.0, "suffix": 0.25}  # of the longest step
SMALLEST = {"full": 90.0, "freeze": 90.0, "suffix": 50.0}  # MB


@pytest.fixture
def chosen(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Choice]:
    """What is chosen for so many minutes, by made-up evidence and plans; AdamW in 8 bits takes 20 MB less."""

    def plans(_bundle: Bundle, given: dict[str, str], changes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [{}]
        for change in changes:
            smallest = SMALLEST[change["schedule"]] - 20 * ("adamw8bit" in (given | change).values())
            found.append(
                {
                    "budget_mb": float(given["budget"].removesuffix("MB")),
                    "smallest_budget_mb": smallest,
                    "step_seconds": SECONDS[change["schedule"]],
                    "stored": {"attn": 0},
                    "units": {"attn": 3},
                }
            )
        return found

    monkeypatch.setattr(auto_schedule, "EVIDENCE", CURVES)
    monkeypatch.setattr(auto_schedule, "native_plans", plans)
    monkeypatch.setattr(auto_schedule, "_SLOWER", 1.0)

    def run(minutes: float, **options: Any) -> Choice:
        given = option_texts(train_options(), {"budget": "200MB"} | options)
        return choose(read_bundle(bundle), given, minutes, ANSWERS)

    return run


def test_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_schedule, "EVIDENCE", CURVES)
    assert learned({"full": 100, "suffix 1/2": 800}) == {"full": 1.0, "suffix 1/2": 1.0}
    curve = [learned({"full": n})["full"] for n in (0, 1, 10, 99, 100, 150, 199, 200)]
    assert curve[0] == 0 and curve[-1] == 1.2 and all(a < b for a, b in pairwise(curve))
    assert 1.1 < curve[5] < 1.15  # over half of the way, by the logarithm
    beyond = learned({"full": 20_000, "freeze": 20_000, "suffix 1/2": 20_000})  # as after 200 each
    assert beyond["full"] == 1.2 and 0.75 < beyond["freeze"] < 0.8 and 0.85 < beyond["suffix 1/2"] < 0.9


def test_what_learns_most_in_the_time(chosen: Callable[..., Choice]) -> None:
    short, long = chosen(20 / 60), chosen(200 / 60)
    assert short.options["schedule"] == "suffix" and short.options["steps"] >= 80
    assert long.options["schedule"] == "full" and long.options["steps"] == 200
    assert chosen(1e6).options["schedule"] == "full"
    assert [line.split("  ")[1] for line in long.why[1:4]] == list(CURVES)


def test_the_mean_step_lies_between_the_longest_of_others() -> None:
    plans = [(0.4, 1.0), (0.6, 2.0), (1.0, 3.0)]
    assert [auto_schedule._between(plans, x) for x in (0.2, 0.4, 0.5, 0.9, 1.0)] == [1.0, 1.0, 1.5, 2.75, 3.0]


def test_the_budget_decides_too(chosen: Callable[..., Choice]) -> None:
    """8-bit moments only where nothing fits otherwise."""
    assert chosen(200 / 60, budget="89MB").options["schedule"] == "suffix"
    assert "optimizer" not in chosen(200 / 60, budget="60MB").options
    tight = chosen(200 / 60, budget="40MB")
    assert tight.options["optimizer"] == "adamw8bit" and any("8-bit AdamW" in line for line in tight.why)
    with pytest.raises(
        mobile_ft.UserError, match="too small for all schedules of auto_schedule; the smallest that works is 51 MB"
    ):
        chosen(1, budget="40MB", optimizer="adamw")


def test_no_more_than_some_epochs(chosen: Callable[..., Choice]) -> None:
    for options, steps in (({}, 10_000), ({"grad_accum": 8}, 1250), ({"batch_size": 5}, 2000)):
        choice = chosen(1e300, **options)
        assert choice.options["steps"] == steps
        assert any("limited to 2 epochs" in line for line in choice.why)


def test_the_choice_is_a_run_of_plain_options(
    cli: Cli, bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"seq_len": 64, "auto_schedule": 0.5, "budget": "100MB"}
    result = mobile_ft.train(bundle, ROWS, out, **options)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("auto-schedule: estimated loss reduction in 0.5 min and 100 MB")
    assert lines[: len(EVIDENCE) + 1] == result.details["auto_schedule"][: len(EVIDENCE) + 1]
    assert sum("<- chosen" in line for line in lines) == 1
    settings = read_run_file(out / "run.yaml")
    assert any(all(settings[name] == e.options[name] for name in e.options) for e in EVIDENCE.values())
    assert settings["lr"] == 2.5e-3  # by the alpha of 8
    assert settings["steps"] == result.steps > 1
    with pytest.raises(mobile_ft.UserError, match="to resume such a run, use OUT/run.yaml as config"):
        mobile_ft.train(bundle, ROWS, out, resume=True, **options)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a", "completion": "b"}\n' * 9)
    again = ["--config", out / "run.yaml", "--data", rows, "--auto-schedule", 0.01, "--out", tmp_path / "again"]
    assert "<- chosen" in cli("train", *again).out  # anew, whatever the earlier run had


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "auto_schedule: requires budget"),
        ({"budget": ""}, "auto_schedule: requires budget"),
        ({"budget": "1GB", "steps": 9, "suffix_depths": "1"}, "auto_schedule sets suffix_depths, steps; remove"),
        ({"budget": "1GB", "cache_prefix": "true"}, "auto_schedule sets cache_prefix; remove"),
        ({"budget": "1GB", "auto_schedule": 0}, "auto_schedule 0: must be a positive number of minutes"),
        ({"budget": "1GB", "auto_schedule": float("inf")}, "auto_schedule inf: must be a positive number of minutes"),
        ({"budget": "1GB", "auto_schedule": "5"}, "auto_schedule 5: must be a positive number of minutes"),
        ({"budget": "1GB", "auto_schedule": 1e-9}, "the time limit is shorter than one step"),
        ({"budget": "1GB", "loss": "dpo"}, "supports loss sft only, not dpo"),
        ({"budget": "1GB", "in_process": True}, "auto_schedule: cannot plan with in_process"),
        ({"budget": "1GB", "batch_size": 0}, "batch_size 0"),
        ({"budget": "1GB", "grad_accum": 0}, "grad_accum 0"),
        ({"budget": "1MB"}, "budget 1MB is too small for all schedules"),
    ],
)
def test_refused(bundle: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    rows = [{"prompt": "a", "chosen": "b", "rejected": "c"}] if options.get("loss") == "dpo" else ROWS
    with pytest.raises(mobile_ft.UserError, match=message):
        mobile_ft.train(bundle, rows, tmp_path / "out", seq_len=64, **({"auto_schedule": 1.0} | options))
