"""`train --auto-schedule`: what it chooses, why, and when it refuses."""

from itertools import pairwise

import pytest

import mobile_ft
from mobile_ft.api.auto_schedule import EVIDENCE, Evidence, choose, learned
from mobile_ft.api.options import option_texts
from mobile_ft.api.run_file import read_run_file
from mobile_ft.bundle import read_bundle
from mobile_ft.data import DataStats
from mobile_ft.runtime import train_options

ROWS = [{"prompt": f"{i}+{i}?", "completion": f"{2 * i}, sir"} for i in range(40)]
ANSWERS = DataStats(rows=5000, sequences=5000, tokens=320_000, target_tokens=100_000, truncated=0, dropped=0)
TEXT = DataStats(rows=5000, sequences=5000, tokens=320_000, target_tokens=319_000, truncated=0, dropped=0)


@pytest.fixture
def chosen(bundle):
    """What is chosen for so many minutes."""

    def run(minutes, data=ANSWERS, **options):
        return choose(read_bundle(bundle), option_texts(train_options(), {"seq_len": 64} | options), minutes, data)

    return run


def test_learned_rises_with_steps_and_then_no_more():
    evidence = Evidence({}, 1e-3, ((100, 1.0), (300, 1.4)))
    assert learned(evidence, 0) == 0 and learned(evidence, 100) == 1 and learned(evidence, 300) == 1.4
    assert all(a < b for a, b in pairwise(learned(evidence, n) for n in (0, 1, 10, 99, 100, 101, 299, 300)))
    assert learned(evidence, 10_000) == 1.4
    assert 1.2 < learned(evidence, 200) < 1.3  # over half of the way, by the logarithm


def test_the_choice_is_a_run_of_plain_options(bundle, tmp_path, capfd):
    options = {"seq_len": 64, "auto_schedule": 0.5, "budget": "100MB"}
    result = mobile_ft.train(bundle, ROWS, tmp_path / "out", **options)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("auto-schedule: what learns most in 0.5 minutes and 100 MB")
    assert sum("<- chosen" in line for line in lines) == 1
    assert [line.split("  ")[1] for line in lines[1 : 1 + len(EVIDENCE)]] == list(EVIDENCE)
    settings = read_run_file(tmp_path / "out" / "run.yaml")
    evidence = next(e for e in EVIDENCE.values() if all(settings[name] == e.options[name] for name in e.options))
    assert settings["lr"] == evidence.lr and settings["warmup_steps"] == 5
    assert settings["steps"] == result.steps > 1
    with pytest.raises(mobile_ft.UserError, match="--resume --config"):
        mobile_ft.train(bundle, ROWS, tmp_path / "out", resume=True, **options)


def test_more_minutes_are_more_steps_up_to_some_epochs(chosen):
    steps = [chosen(minutes, budget="1GB").options["steps"] for minutes in (0.001, 0.002, 1e6)]
    assert 1 <= steps[0] < steps[1] < steps[2] == 20_000
    assert any("20000 steps are 4 epochs" in line for line in chosen(1e6, budget="1GB").why)
    batches = chosen(1e6, budget="1GB", batch_size=1, grad_accum=8)
    assert batches.options["steps"] == 2500


def test_text_is_trained_at_half_the_rate(chosen):
    answers, text = chosen(1e6, budget="1GB"), chosen(1e6, TEXT, budget="1GB")
    assert text.options["lr"] == answers.options["lr"] / 2
    assert text.options["schedule"] == answers.options["schedule"] == "full"


def test_moments_are_in_8_bits_only_where_others_leave_no_room(chosen, bundle):
    def smallest(**options):
        plans = (mobile_ft.plan(bundle, seq_len=64, **e.options, **options) for e in EVIDENCE.values())
        return min(plan.smallest_budget_mb for plan in plans)

    usual, least = smallest(), smallest(optimizer="adamw8bit")
    assert least < usual
    tight = chosen(1, budget=f"{(least + usual) / 2}MB")
    assert tight.options["optimizer"] == "adamw8bit" and any("8 bits only" in line for line in tight.why)
    assert "optimizer" not in chosen(1, budget="1GB").options
    with pytest.raises(mobile_ft.UserError, match="too small for every schedule"):
        chosen(1, budget=f"{(least + usual) / 2}MB", optimizer="adamw")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--auto-schedule: give --budget too"),
        ({"budget": "1GB", "lr": 1e-3, "suffix_depths": "1"}, "--auto-schedule: chooses --suffix-depths, --lr; leave"),
        ({"budget": "1GB", "auto_schedule": 0}, "--auto-schedule 0: how many minutes"),
        ({"budget": "1GB", "auto_schedule": float("inf")}, "--auto-schedule inf: how many minutes"),
        ({"budget": "1MB"}, "budget 1MB is too small for every schedule"),
    ],
)
def test_refused(bundle, tmp_path, options, message):
    with pytest.raises(mobile_ft.UserError, match=message):
        mobile_ft.train(bundle, ROWS, tmp_path / "out", seq_len=64, **{"auto_schedule": 1.0} | options)
