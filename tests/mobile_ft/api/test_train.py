import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import mobile_ft
from mobile_ft.api.run_file import read_run_file
from tests.mobile_ft.conftest import Cli

ROWS = [{"prompt": "2+2?", "completion": "4, sir"}, {"prompt": "Who?", "completion": "Me"}]
OPTIONS: dict[str, Any] = {"seq_len": 64, "steps": 6, "lr": 1e-2}

Train = Callable[..., mobile_ft.TrainResult]


@pytest.fixture
def train(bundle: Path, tmp_path: Path) -> Train:
    """Trains on ROWS; the result."""

    def run(out: str = "out", data: Any = ROWS, **options: Any) -> mobile_ft.TrainResult:
        return mobile_ft.train(bundle, data, tmp_path / out, progress=False, **(OPTIONS | options))

    return run


def test_rows_in_memory(train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[dict[str, Any]] = []
    result = train(callbacks=[events.append])
    assert capfd.readouterr() == ("", "")
    assert (result.steps, result.stopped, result.evals, result.best_adapter) == (6, None, [], None)
    assert result.losses == [event["loss"] for event in events if event["event"] == "step"]
    assert result.losses[-1] < result.losses[0]
    assert [event["event"] for event in events] == ["plan", *["step"] * 6, "saved", "done"]
    assert result.options["lr"] == "0.01" and result.options["schedule"] == "full"
    assert result.details["backward_runs"]
    json.dumps(result.to_json())
    settings = read_run_file(tmp_path / "out" / "run.yaml")
    assert "data" not in settings
    assert settings["threads"] >= 1


def test_the_same_in_this_process(train: Train, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    here, child = train("here", in_process=True, callbacks=[events.append]), train("child")
    assert here.losses == child.losses
    assert [event["event"] for event in events] == ["plan", *["step"] * 6, "saved", "done"]
    files = [(tmp_path / out / "adapter_model.safetensors").read_bytes() for out in ("here", "child")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "lcsb", "warmup_ratio": 0.3, "budget": "100MB", "seed": 3},
        {"epochs": 3, "lr_scheduler": "linear", "optimizer": "adamw8bit"},
        {"eval_every": 2, "batch_size": 2, "seq_len": 32, "max_grad_norm": 0.1},
    ],
)
def test_run_file_repeats_a_run_bit_for_bit(
    cli: Cli, bundle: Path, data: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 2))
    given = {name: value for name, value in OPTIONS.items() if not (name == "steps" and "epochs" in options)} | options
    first = mobile_ft.train(bundle, data, tmp_path / "first", progress=False, **given)
    report = tmp_path / "report.json"
    command = ["train", "--config", tmp_path / "first" / "run.yaml", "--out", tmp_path / "again", "--json", report]
    assert cli(*command).code == 0
    again = json.loads(report.read_text())
    assert again["losses"] == first.losses
    assert again["evals"] == first.evals
    files = [(tmp_path / out / "adapter_model.safetensors").read_bytes() for out in ("first", "again")]
    assert files[0] == files[1]
    settings = [read_run_file(tmp_path / out / "run.yaml") for out in ("first", "again")]
    assert settings[0] == settings[1]
    assert ("epochs" in settings[0]) == ("epochs" in options) != ("steps" in settings[0])


def test_early_stopping_keeps_the_best_adapter(train: Train, bundle: Path, tmp_path: Path) -> None:
    """One answer learned by heart makes another less likely."""
    valid = [{"prompt": "2+2?", "completion": "It is four."}]
    rows = [{"prompt": "2+2?", "completion": "4, sir"}]
    result = train(data=rows, valid=valid, eval_every=5, patience=3, steps=300, lr=2e-2)
    assert result.stopped == "patience"
    assert result.steps < 300
    assert [step for step, _ in result.evals] == list(range(5, result.steps + 1, 5))
    assert result.best_loss == min(loss for _, loss in result.evals)
    assert result.best_step == result.steps - 3 * 5
    best, last = (
        mobile_ft.evaluate(bundle, valid, adapter=adapter, seq_len=64, progress=False).loss
        for adapter in (result.best_adapter, result.adapter)
    )
    assert best == pytest.approx(result.best_loss, rel=1e-6)
    assert best < last == pytest.approx(result.evals[-1][1], rel=1e-6)


@pytest.mark.parametrize("in_process", [False, True])
def test_ctrl_c_returns_what_is_saved_and_resume_goes_on(train: Train, tmp_path: Path, in_process: bool) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    whole = train("whole", steps=200)
    part = train(steps=200, callbacks=[interrupt], in_process=in_process)
    assert part.stopped == "interrupted"
    assert 3 <= part.steps < 200  # the child goes on until the signal is there
    assert part.losses == whole.losses[: part.steps]
    assert len(load_file(tmp_path / "out" / "checkpoint.safetensors")) > 0
    assert "interrupted" in repr(part)
    json.dumps(part.to_json())
    rest = train(steps=200, resume=True, in_process=in_process)
    assert (rest.stopped, rest.losses) == (None, whole.losses)


def test_a_resumed_run_validates_and_is_repeated_as_it_began(
    train: Train, cli: Cli, bundle: Path, data: Path, tmp_path: Path
) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3:
            raise KeyboardInterrupt

    adapter, valid = train("adapter", steps=2).adapter, data / "valid.jsonl"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    options = {"data": tmp_path / "rows.jsonl", "steps": 60, "adapter": adapter}
    options |= {"valid": valid, "eval_every": 2, "patience": 60}
    whole = train("whole", **options)
    assert train(**options, callbacks=[interrupt]).steps < 60
    rest = train(data=options["data"], steps=60, resume=True)
    assert (rest.losses, rest.evals) == (whole.losses, whole.evals)
    again, before = (read_run_file(tmp_path / out / "run.yaml") for out in ("out", "whole"))
    assert again == before and again["adapter"] == str(adapter)
    report = tmp_path / "report.json"
    command = ["train", "--config", tmp_path / "out" / "run.yaml", "--out", tmp_path / "again", "--json", report]
    assert cli(*command).code == 0
    assert json.loads(report.read_text())["losses"] == whole.losses
    silent = train(data=options["data"], steps=60, resume=True, eval_every=0)
    assert silent.losses == whole.losses


@pytest.mark.parametrize("in_process", [False, True])
def test_callback_that_raises_ends_the_run_saved(train: Train, tmp_path: Path, in_process: bool) -> None:
    seen: list[str] = []

    def fail(event: dict[str, Any]) -> None:
        seen.append(event["event"])
        if event["event"] == "step":
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="^enough$"):
        train(steps=10_000, callbacks=[fail], in_process=in_process)
    assert seen == ["plan", "step"]
    assert (tmp_path / "out" / "checkpoint.safetensors").is_file()


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_failed_save_is_told_after_ctrl_c(train: Train, tmp_path: Path, in_process: bool, error: type) -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            (tmp_path / "out" / "checkpoint.safetensors").mkdir()
            raise error

    with pytest.raises(mobile_ft.UserError, match="checkpoint.safetensors"):
        train(steps=10_000, callbacks=[fail], in_process=in_process)


def test_a_child_killed_after_ctrl_c_is_told(train: Train, fake_mft_run: Callable[[str], None]) -> None:
    fake_mft_run("trap 'kill -9 $$' TERM; echo '{\"event\": \"saved\"}'; while :; do sleep 0.01; done")

    def interrupt(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(mobile_ft.UserError, match=r"killed \(signal 9\); no checkpoint was written yet"):
        train(callbacks=[interrupt])


@pytest.mark.parametrize("end", ["exit 255", "exit 143", "trap - TERM; kill $$"])
def test_a_child_that_ends_as_it_was_asked_to_has_not_failed(
    train: Train, fake_mft_run: Callable[[str], None], end: str
) -> None:
    """As ssh does, or a shell on a device."""
    fake_mft_run(f"trap '{end}' TERM; echo '{{\"event\": \"saved\"}}'; while :; do sleep 0.01; done")

    def interrupt(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    assert train(callbacks=[interrupt]).stopped == "interrupted"


def test_validation_takes_the_datas_own_split(bundle: Path, data: Path, tmp_path: Path) -> None:
    result = mobile_ft.train(bundle, data, tmp_path / "out", progress=False, eval_every=3, **OPTIONS)
    assert [step for step, _ in result.evals] == [3, 6]
    assert read_run_file(tmp_path / "out" / "run.yaml")["data"] == str(data)


def test_preferences(train: Train) -> None:
    rows = [{"prompt": "2+2?", "chosen": "4, sir", "rejected": "5"}] * 2
    events: list[dict[str, Any]] = []
    result = train(data=rows, loss="dpo", beta=0.5, steps=20, callbacks=[events.append])
    steps = [event for event in events if event["event"] == "step"]
    assert result.losses[0] == pytest.approx(0.6931, abs=1e-3)  # log 2: nothing is preferred yet
    assert result.losses[-1] < 0.5
    assert steps[-1]["reward_accuracy"] == 1 and steps[-1]["reward_margin"] > 0


def test_dataset_of_the_datasets_library(train: Train) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS)
    splits = datasets.DatasetDict({"train": rows, "validation": rows})
    plain = train()
    assert train("dataset", data=rows).losses == plain.losses
    result = train("splits", data=splits, eval_every=3)
    assert result.losses == plain.losses
    assert len(result.evals) == 2


def test_reports_and_callbacks_together(train: Train, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    train(callbacks=[events.append], report_to="jsonl")
    lines = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == events


def test_cache_prefix(train: Train, cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    """A flag, in Python, on the command line and in run.yaml."""
    plain = train("plain", schedule="freeze", ratio=0.3, steps=12)
    cached = train("cached", schedule="freeze", ratio=0.3, steps=12, cache_prefix=True)
    assert cached.losses == plain.losses
    calls = [sum(method["calls"] for method in run.details["method_seconds"].values()) for run in (cached, plain)]
    assert calls[0] < calls[1]
    assert cached.options["cache_prefix"] == "true" and plain.options["cache_prefix"] == "false"
    settings = read_run_file(tmp_path / "cached" / "run.yaml")
    assert settings["cache_prefix"] is True
    run = ["train", bundle, "--data", data, "--seq-len", 64, "--steps", 4, "--schedule", "freeze", "--cache-prefix"]
    cli(*run, "--out", tmp_path / "flag", "--json", tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text())["options"]["cache_prefix"] == "true"
    with pytest.raises(mobile_ft.UserError, match="cache_prefix: requires schedule freeze, not full"):
        train("full", cache_prefix=True)
    with pytest.raises(mobile_ft.UserError, match="cache_prefix yes: must be true or false"):
        train("full", cache_prefix="yes")


@pytest.mark.parametrize("schedule", ["dropbp", "suffix"])
def test_schedule_report(train: Train, tmp_path: Path, schedule: str) -> None:
    events: list[dict[str, Any]] = []
    report = tmp_path / "report.html"
    train(schedule=schedule, steps=10, callbacks=[events.append], schedule_report=report)
    page = report.read_text()
    assert "<svg" in page and f"Schedule {schedule}" in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    steps = [event for event in events if event["event"] == "step"]
    assert [step["trained"] for step in data["steps"]] == [step["trained"] for step in steps]
    assert all(step["trained"].count("1") == step["backward_units"] for step in steps)
    units = events[0]["unit_names"]
    assert data["units"] == units and len(steps[0]["trained"]) == len(units)
    measured = [event for event in events if event["event"] == "sensitivities"]
    assert len(measured) == (schedule == "dropbp")
    for event in measured:
        assert event["step"] == data["measured_at"] == 2
        assert len(event["sensitivities"]) == len(event["drop_rates"]) == len(units)
        assert data["drop_rates"] == event["drop_rates"] and f"<td>{event['drop_rates'][0]:.1f}" in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule_report": "nowhere/report.html"}, "schedule_report nowhere/report.html: the folder nowhere does"),
        ({"learning_rate": 1}, "learning_rate: unknown option"),
        ({"step": 3}, r"step: unknown option; did you mean steps"),
        ({"eval_every": 2}, "eval_every 2: requires valid, or data with a validation split"),
        ({"valid": ROWS}, "valid: requires eval_every"),
        ({"report_to": "paper"}, "report_to paper: unknown logger"),
        ({"seq_len": 65}, "seq_len 65 exceeds the 64 tokens"),
        ({"steps": 0}, "steps 0: must be at least 1"),
        ({"steps": True}, "steps True: must be an integer"),
        ({"budget": "1MB"}, "budget 1MB is too small"),
        ({"steps": 3, "epochs": 1}, "set either steps or epochs"),
        ({"in_process": True, "budget": "1MB"}, "budget 1MB is too small"),
        ({"in_process": True, "adapter": "nowhere"}, "nowhere/adapter_config.json"),
    ],
)
def test_bad_values(train: Train, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(mobile_ft.UserError, match=message) as error:
        train(**options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "checkpoint.safetensors").exists()


def test_an_earlier_run_is_not_written_over(train: Train) -> None:
    train()
    with pytest.raises(mobile_ft.UserError, match="holds the checkpoint of an earlier run"):
        train()


def test_the_folder_of_a_run_that_goes_on_is_left_alone(train: Train, tmp_path: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}

    def train_there_again(event: dict[str, Any]) -> None:
        if event["event"] != "step" or event["step"] != 2:
            return
        before = contents()
        for options in ({}, {"resume": True}):
            with pytest.raises(mobile_ft.UserError, match="/out: another run is writing to this folder"):
                train(data=ROWS[:1], report_to="jsonl", steps=200, in_process=True, **options)
        after = contents()
        assert before["tokens.safetensors"] == after["tokens.safetensors"]
        assert before["log.jsonl"] and after["log.jsonl"].startswith(before["log.jsonl"])

    train(report_to="jsonl", callbacks=[train_there_again], steps=200)


def test_cut_rows_are_warned_of(train: Train) -> None:
    rows = [{"prompt": "a", "completion": "b" * 100}]
    with pytest.warns(mobile_ft.MobileFtWarning, match="train data: 1 of 1 rows were truncated at seq_len 64") as seen:
        train(data=rows, steps=1)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train("short", steps=1)
