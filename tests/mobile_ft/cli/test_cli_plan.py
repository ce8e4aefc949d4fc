import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mobile_ft.conftest import Cli, Result

NATIVE_FIELDS = {
    *("planned_mb", "planned_anon_mb", "budget_mb", "components_mb", "anonymous", "stored", "units"),
    *("checkpoints", "offloaded", "resident_units", "arithmetic", "step_seconds", "read_seconds", "relative_time"),
    *("smallest_budget_mb", "longest_seq_len", "max_seq_len", "options"),
}

Run = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture
def plan(cli: Cli, bare_bundle: Path, tmp_path: Path) -> Run:
    """Runs `mobile-ft plan`: the result, and what --json holds."""

    def run(*options: object) -> tuple[Result, dict[str, Any]]:
        report = tmp_path / "plan.json"
        result = cli("plan", bare_bundle, "--seq-len", 64, *options, "--json", report)
        return result, json.loads(report.read_text())

    return run


def test_plan_adds_up(plan: Run) -> None:
    result, values = plan("--budget", "1GB")
    assert (result.code, result.err) == (0, "")
    assert set(values) == NATIVE_FIELDS | {"savings", "device"}
    components = values["components_mb"]
    assert sum(components.values()) == pytest.approx(values["planned_mb"])
    assert sum(components[name] for name in values["anonymous"]) == pytest.approx(values["planned_anon_mb"])
    assert values["planned_mb"] < values["budget_mb"] == 1000
    assert values["longest_seq_len"] == 64
    for text in ("optimizer", "anonymous", "budget 1000 MB", "64 tokens, the maximum of the bundle"):
        assert text in result.out


def test_auto_stores_what_the_budget_has_room_for(plan: Run) -> None:
    result, values = plan("--budget", "1GB")
    assert (values["stored"], values["relative_time"]) == ({"attn": 2, "mlp": 2}, 1.0)
    assert "activations of 2 attention and 2 MLP units stored" in result.out


def test_auto_recomputes_without_a_budget(plan: Run) -> None:
    result, values = plan()
    assert (values["stored"], values["checkpoints"]) == ({"attn": 0, "mlp": 0}, 4)
    assert values["relative_time"] > 1
    assert "longest sequence" not in result.out  # there is no budget to be within


def test_savings_are_planned_with_their_options(
    cli: Cli, bare_bundle: Path, tmp_path: Path, fake_mft_run: Callable[[str], None]
) -> None:
    """With plans made up: a small model's savings would drown in what code takes from process to process."""
    plan = {"event": "plan", "planned_mb": 90, "planned_anon_mb": 80, "budget_mb": None, "components_mb": {"lora": 90}}
    plan |= dict.fromkeys(("checkpoints", "offloaded", "resident_units"), 0) | {
        "stored": {"attn": 0},
        "units": {"attn": 2},
    }
    plan |= {"arithmetic": "float32-avx2", "step_seconds": 1.5, "read_seconds": 0.0}
    plan |= {"anonymous": ["lora"], "relative_time": 1.2, "smallest_budget_mb": 70.1, "longest_seq_len": 64}
    plans = [json.dumps(plan | {"planned_mb": 90 - i}) for i in range(5)]
    (tmp_path / "plans").write_text("".join(f"{line}\n" for line in plans))
    fake_mft_run(f'printf "%s\\n" "$@" >> {tmp_path}/arguments; cat {tmp_path}/plans')
    report = tmp_path / "plan.json"
    result = cli("plan", bare_bundle, "--seq-len", 64, "--json", report)
    assert (result.code, result.err) == (0, "")
    assert "72 MB" in result.out
    every = {"optimizer": "adamw8bit", "max_grad_norm": 0, "schedule": "suffix", "ratio": 0.5}
    rows = json.loads(report.read_text())["savings"]
    assert [row["options"] for row in rows] == [
        *({"optimizer": "adamw8bit"}, {"max_grad_norm": 0}, {"schedule": "suffix", "ratio": 0.5}),
        every,
    ]
    assert [row["planned_mb"] for row in rows] == [89, 88, 87, 86]
    assert (tmp_path / "arguments").read_text().splitlines() == [
        *("plan", str(bare_bundle), "--seq-len", "64", "--variant", "optimizer=adamw8bit"),
        *("--variant", "max-grad-norm=0", "--variant", "schedule=suffix,ratio=0.5"),
        *("--variant", "optimizer=adamw8bit,max-grad-norm=0,schedule=suffix,ratio=0.5"),
    ]


def test_nothing_left_to_save(plan: Run) -> None:
    options = ("--optimizer", "adamw8bit", "--max-grad-norm", 0, "--schedule", "suffix")
    result, values = plan(*options)
    assert values["savings"] == []
    assert "Options that save memory" not in result.out


def test_savings_are_those_that_would_work(plan: Run) -> None:
    """Gradients that are added up over batches have to be there all at once."""
    _, values = plan("--grad-accum", 2, "--schedule", "suffix")
    assert [row["options"] for row in values["savings"]] == [{"optimizer": "adamw8bit"}]


def test_too_small_a_budget_is_refused_with_the_smallest_that_works(plan: Run) -> None:
    result, values = plan("--budget", "1MB")
    smallest = math.ceil(values["smallest_budget_mb"]) + 1
    assert result.code == 1
    assert f"error: --budget 1MB is too small: the smallest that works is {smallest} MB; raise it" in result.err
    assert result.err.count("\n") == 1
    assert "budget 1 MB" in result.out
    assert "none fits" in result.out
    result, values = plan("--budget", f"{smallest}MB")
    assert (result.code, result.err) == (0, "")


def test_config_alone_is_enough(cli: Cli, model_config: Path, tmp_path: Path) -> None:
    report = tmp_path / "plan.json"
    result = cli("plan", model_config, "--seq-len", 32, "--json", report)
    assert (result.code, result.err) == (0, "")
    assert json.loads(report.read_text())["longest_seq_len"] == 128


def test_a_model_in_its_own_format(cli: Cli, tmp_path: Path) -> None:
    """A bundle of it need not be made, nor are its weights read."""
    report = tmp_path / "plan.json"
    result = cli("plan", "smollm2-135m", "--seq-len", 64, "--json", report)
    assert (result.code, result.err) == (0, "")
    assert 80 < json.loads(report.read_text())["planned_mb"] < 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seq-len", 65], "seq_len 65 exceeds the 64 tokens that "),
        (["--seq-len", 64, "--budget", "lots"], "budget lots: must be a size such as 512MB"),
        (["--seq-len", 64, "--json", "nowhere/p.json"], "--json nowhere/p.json: the folder nowhere does not exist"),
    ],
)
def test_bad_values_are_one_line(cli: Cli, bare_bundle: Path, options: list[object], message: str) -> None:
    result = cli("plan", bare_bundle, *options)
    assert result.code == 1
    assert result.err.startswith(f"mobile-ft: error: {message}")
    assert result.err.count("\n") == 1


def test_config_of_a_model_with_a_shorter_limit(cli: Cli, model_config: Path) -> None:
    result = cli("plan", model_config, "--seq-len", 100, "--batch-size", 2)
    assert result.code == 1
    assert f"seq_len x batch_size is 200 tokens; {model_config} supports at most 128" in result.err


def test_another_device_is_estimated(plan: Run) -> None:
    """Its threads and arithmetic count for memory and time, and what it reads when weights do not fit."""
    result, values = plan("--device", "pixel-8")
    assert (result.code, result.err) == (0, "")
    assert (values["arithmetic"], values["options"]["threads"]) == ("int8-i8mm", "5")
    assert values["device"]["chip"] == "Tensor G3"
    assert values["device"]["hot_step_seconds"] > values["step_seconds"] > 0
    assert all(row["step_seconds"] > 0 for row in values["savings"])
    for text in ("on pixel-8, estimated", "Tensor G3, 5 threads", "of the battery"):
        assert text in result.out
    _, slower = plan("--device", "pixel-8", "--threads", "1")
    assert slower["step_seconds"] > 2 * values["step_seconds"]
    assert plan()[1]["device"] is None


def test_an_unknown_device_is_an_error(cli: Cli, bare_bundle: Path) -> None:
    result = cli("plan", bare_bundle, "--seq-len", 64, "--device", "pixel-88")
    assert (result.code, result.out) == (1, "")
    assert "device pixel-88: unknown device; did you mean pixel-8" in result.err
