"""What may happen to a run that takes days: the clock is set, and somebody starts the same once more."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.preload import compile_preload
from tests.runtime.native import command, events, failure


@pytest.fixture
def run(small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path) -> list[Any]:
    data = token_file(tmp_path / "tokens", 250, 32, 10)
    return ["train", small_bundle, "--data", data, "--seq-len", 32, "--valid", data]


@pytest.fixture(scope="module")
def jumping_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_preload(Path(__file__).with_name("clock.c"), tmp_path_factory.mktemp("clock"))


def test_a_clock_that_is_set(
    run: list[Any], jumping_clock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but how long measurements are remembered asks for the time of day."""
    run += ["--steps", 6, "--eval-every", 2, "--save-every", 2]
    expected = events(*run, "--out", tmp_path / "right")[-1]
    monkeypatch.setenv("LD_PRELOAD", str(jumping_clock))
    date = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout
    assert abs(int(date) - time.time()) > 300 * 24 * 60 * 60  # it does jump
    for cache in ("measured anew", "and remembered"):
        found = events(*run, "--out", tmp_path / cache)
        steps = [event for event in found if event["event"] == "step"]
        assert [event["loss"] for event in steps] == found[-1]["losses"] == expected["losses"]
        assert found[-1]["evals"] == expected["evals"]
        assert all(0 <= event["seconds"] < 60 for event in steps)
        shutil.rmtree(tmp_path / cache)


def test_one_run_a_folder(run: list[Any], tmp_path: Path) -> None:
    """The second one is refused and changes nothing; a killed one leaves no lock behind."""
    out = tmp_path / "out"
    run += ["--out", out, "--eval-every", 1000]
    with subprocess.Popen(command(*run, "--steps", 100000), stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        while '"event":"step"' not in first.stdout.readline():
            pass
        # Else the plan would hold only where the kernel gives no huge pages unasked.
        assert "THP_enabled:\t0\n" in Path(f"/proc/{first.pid}/status").read_text()
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        assert f"{out}: another run is writing to this folder" in failure(*run, "--steps", 1)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
        first.kill()
    assert events(*run, "--steps", 1)[-1]["steps"] == 1


def test_a_billion_steps_at_most(run: list[Any], tmp_path: Path) -> None:
    """Counters are of 64 bits, or of 32, which hold that."""
    run += ["--eval-every", 1000, "--out", tmp_path / "out"]
    assert "steps 1000000001: must be at most 1000000000" in failure(*run, "--steps", 1000000001)
    with subprocess.Popen(command(*run, "--steps", 1000000000), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        plan = process.stdout.readline()
        assert '"steps":1000000000' in plan and '"event":"step"' in process.stdout.readline()
        process.terminate()
        assert '"event":"stopped"' in process.stdout.read()
    assert process.returncode == 1 and os.path.getsize(tmp_path / "out" / "checkpoint.safetensors") < 1e6
