"""`benchmarks/profile_step.py` on what a training run reports."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.runtime.native import events

TOOL = Path(__file__).parents[2] / "benchmarks" / "profile_step.py"


def test_profile_of_a_run(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 5)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 2]
    for schedule, ok in (("full", True), ("lcsb", False)):
        report = tmp_path / f"{schedule}.json"
        report.write_text(json.dumps(events(*run, "--schedule", schedule, "--out", tmp_path / schedule)[-1]))
        command: list[str | Path] = [sys.executable, TOOL, report, "--bundle", small_bundle]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode == 0) is ok
        assert ("packed_linear_lora" in result.stdout) is ok
