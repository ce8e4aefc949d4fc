"""Files of an earlier version, under tests/fixtures/before_rename, mean today what they meant then."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mobile_ft
from mobile_ft.api.native import parse_event
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.run_file import read_run_file
from mobile_ft.api.watcher import RunWatcher
from mobile_ft.runtime import instruction_sets, renamed
from tests.runtime.native import command, failure

FOLDER = Path(__file__).parent / "fixtures" / "before_rename"
BUNDLE, ROWS = FOLDER / "bundle", FOLDER / "rows.jsonl"

same_machine = pytest.mark.skipif("avx2" not in instruction_sets(), reason="the files were computed with AVX2")


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def printed(*arguments: object) -> str:
    """What a program prints that computes as the earlier one did."""
    text = [str(argument) for argument in arguments]
    done = subprocess.run(text, capture_output=True, text=True, env=os.environ | {"MFT_ISA": "avx2"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(out: Path, *arguments: object) -> Any:
    results = out.with_suffix(".json")
    train = [sys.executable, "-m", "mobile_ft.cli.main", "train", BUNDLE, "--data", ROWS, "--out", out]
    printed(*train, "--json", results, *arguments)
    return json.loads(results.read_text())["losses"]


@same_machine
@pytest.mark.parametrize("options", [[], ["--config", FOLDER / "run" / "run.yaml"]], ids=["", "run.yaml"])
def test_a_run_resumes_to_the_same_losses(tmp_path: Path, options: list[object]) -> None:
    """Not even options whose defaults are others now have to be given."""
    out = tmp_path / "run"
    shutil.copytree(FOLDER / "run", out)
    assert losses(out, "--resume", *options) == lines("events.jsonl")[-1]["losses"]


@same_machine
def test_run_yaml_repeats_a_run(tmp_path: Path) -> None:
    assert losses(tmp_path / "again", "--config", FOLDER / "run" / "run.yaml") == lines("events.jsonl")[-1]["losses"]


def test_run_yaml_has_every_option_whose_default_changed() -> None:
    values = read_run_file(FOLDER / "run" / "run.yaml")
    assert (values["lr"], values["warmup_steps"], values["warmup_ratio"]) == (2e-4, 3, 0)


@same_machine
def test_a_bundle_and_an_adapter_generate_the_same() -> None:
    options = ["--adapter", FOLDER / "run", "--prompt", "hello", "--max-tokens", 12, "--temp", 1, "--seed", 1]
    text = printed(*command("generate", BUNDLE, *options, "--trust", FOLDER / "key.pub"))  # it is signed, too
    events = [json.loads(line) for line in text.splitlines()]
    assert events[:-1] == lines("answer.jsonl")[:-1]  # the last one tells the time


def test_a_bundle_trains(tmp_path: Path) -> None:
    result = mobile_ft.train(BUNDLE, ROWS, tmp_path / "out", progress=False, steps=2, seq_len=32)
    assert mobile_ft.evaluate(BUNDLE, ROWS, adapter=result.adapter, seq_len=32, progress=False).loss > 0


def test_recorded_events_are_read_under_todays_names() -> None:
    assert "version" not in lines("events.jsonl")[0] and lines("events.jsonl")[0]["spilled"] == 0
    watcher = RunWatcher(ProgressDisplay("step", False), [])
    for line in (FOLDER / "events.jsonl").read_text().splitlines():
        watcher.on_event(parse_event(line))
    result = watcher.result(Path("out"), {}, None, [])
    assert result.steps == 12 and result.details["offloaded"] == 0 and "spilled" not in result.details


def test_a_renamed_option_names_the_new_one() -> None:
    assert renamed()["rates"] == "throughput"
    error = failure("plan", BUNDLE, "--rates", "1,1,1,1,1")
    assert error == "mft-run: error: unknown option --rates; it is called --throughput now\n"
    assert failure("eval", BUNDLE, "--rates", "1") == "mft-run: error: unknown option --rates\n"  # has neither
