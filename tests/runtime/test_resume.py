"""A run killed in the middle goes on to the same losses, bit for bit."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.runtime.native import command, events, failure


@pytest.mark.parametrize("schedule", ["full", "lcsb", "suffix"])
def test_kill_and_resume(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, schedule: str) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    options = ["--data", data, "--steps", 300, "--seq-len", 32, "--lr", 1e-3, "--schedule", schedule]
    options += ["--save-every", 7, "--grad-accum", 2, "--warmup-steps", 5]
    whole = events("train", small_bundle, *options, "--out", tmp_path / "whole")[-1]

    process = subprocess.Popen(
        command("train", small_bundle, *options, "--out", tmp_path / "killed"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line).get("step", 0) >= 100:
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    resumed = events("train", small_bundle, *options, "--out", tmp_path / "killed", "--resume")
    assert 98 <= resumed[0]["steps_done"] < 300
    assert resumed[-1]["losses"] == whole["losses"]
    ours, expected = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("killed", "whole"))
    assert all(np.array_equal(ours[name], expected[name]) for name in expected)


def test_resume_of_another_run_is_refused(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 5)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--out", tmp_path / "out"]
    events(*run, "--steps", 3)
    assert "steps 3, not 5" in failure(*run, "--steps", 5, "--resume")
    assert "lr 0.0002, not 0.001" in failure(*run, "--steps", 3, "--lr", 1e-3, "--resume")
    assert "give --resume" in failure(*run, "--steps", 3)
    token_file(data, 250, 32, 5, seed=1)
    assert "data_crc32" in failure(*run, "--steps", 3, "--resume")
    assert "nothing to resume" in failure(*run[:-1], tmp_path / "new", "--resume")


def test_same_seed_same_run(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 10, "--schedule", "lcsb"]
    first, again, other = (
        events(*run, "--seed", seed, "--out", tmp_path / name)[-1]["losses"]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert first != other
