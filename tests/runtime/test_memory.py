"""Memory of the training process, as the kernel reports it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.native import events, failure, files


@pytest.mark.parametrize("options", [[], ["--schedule", "lcsb"], ["--schedule", "suffix"]])
def test_smollm2_fits(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path, options: list[str]) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 8)
    run = ["train", smollm2, "--data", data, "--steps", 3, "--seq-len", 256, "--budget", "300MB"]
    done = events(*run, *options, "--out", tmp_path / "out")[-1]
    assert done["peak_anon_mb"] <= 150
    assert done["peak_rss_mb"] <= 300
    assert done["peak_rss_mb"] <= done["planned_mb"] <= done["budget_mb"] == 300


def test_activations_are_stored_as_far_as_the_budget_goes(
    smollm2: Path, token_file: Callable[..., Path], tmp_path: Path
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 8)
    run = ["train", smollm2, "--data", data, "--steps", 2, "--seq-len", 256, "--backward"]
    least = events(*run, "recompute", "--out", tmp_path / "recompute")[-1]
    some = events(*run, "auto", "--budget", "250MB", "--out", tmp_path / "auto")[-1]
    assert 0 < some["stored_layers"] < 30
    assert least["peak_anon_mb"] < some["peak_anon_mb"]
    assert some["peak_rss_mb"] <= some["planned_mb"] <= 250
    assert some["losses"] == least["losses"]
    assert "needs" in failure(*run, "store", "--budget", "250MB", "--out", tmp_path / "store")


def test_budget_too_small(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """The error names the smallest budget that works, and it does work."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 5)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 2, "--out", tmp_path / "out"]
    message = failure(*run, "--budget", "1MB")
    assert not files(tmp_path / "out")
    needed = int(message.split("needs ")[1].split("MB")[0])
    assert needed > 1
    done = events(*run, "--budget", f"{needed + 1}MB")[-1]
    assert done["peak_rss_mb"] <= needed + 1
