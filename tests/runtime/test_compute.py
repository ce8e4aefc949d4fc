"""Linear layers in int8 within a whole step: gradients, threads, memory, runs that move between instruction sets."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.runtime import Model, TrainConfig, Trainer, instruction_set, instruction_sets
from mobile_ft.runtime._core import kernels
from tests.conftest import WITHOUT_DOT_PRODUCTS
from tests.runtime.native import events, failure

LAYERS = 30
SETS = instruction_sets()


@pytest.fixture(autouse=True)
def _best_instruction_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = instruction_set()
    monkeypatch.setenv("MFT_ISA", SETS[-1])
    kernels.use_instruction_set(SETS[-1])
    yield
    kernels.use_instruction_set(before)


def cosine(a: dict[str, np.ndarray], b: dict[str, np.ndarray], part: str = "") -> float:
    x, y = (np.concatenate([g.ravel().astype(np.float64) for name, g in all.items() if part in name]) for all in (a, b))
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def accumulated(bundle: Path, adapter: Path, tokens: np.ndarray, compute: str) -> tuple[float, dict[str, np.ndarray]]:
    trainer = Trainer(Model(str(bundle)), TrainConfig(seq_len=256, compute=compute), str(adapter))
    loss = trainer.accumulate(tokens[:-1], tokens[1:], np.arange(len(tokens) - 1), [True] * LAYERS)
    return loss / (len(tokens) - 1), trainer.gradients()


@pytest.mark.parametrize("length", [64, 256])
def test_gradients_of_a_step(smollm2: Path, adapter: Path, text_tokens: np.ndarray, length: int) -> None:
    """Against float32, which is within 1e-4 of float64 (test_gradients.py)."""
    tokens = text_tokens[: length + 1]
    exact_loss, exact = accumulated(smollm2, adapter, tokens, "float32")
    loss, ours = accumulated(smollm2, adapter, tokens, "int8")
    assert loss != exact_loss
    assert loss == pytest.approx(exact_loss, rel=0.02)
    assert cosine(ours, exact) > 0.985
    for layer in range(LAYERS):
        assert cosine(ours, exact, f".layers.{layer}.") > 0.97, layer


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((70, n)).astype(np.float32) for n in (576, 192))
    weight = kernels.Weight(rng.integers(0, 56, (12, 18, 320), np.uint8), "q4_1", 192)

    def run() -> list[np.ndarray]:
        return [kernels.linear_forward(x, weight, compute="int8"), kernels.linear_backward(dy, weight, compute="int8")]

    several = run()
    kernels.use_threads(False)
    one = run()
    kernels.use_threads(True)
    assert all(np.array_equal(a, b) for a, b in zip(several, one, strict=True))


@pytest.mark.parametrize("name", SETS)
def test_every_instruction_set_trains_alike(
    name: str, small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 6, "--lr", 1e-3]
    losses: dict[str, Any] = {}
    for compute in ("float32", "int8"):
        monkeypatch.setenv("MFT_ISA", name)
        done = events(*run, "--compute", compute, "--out", tmp_path / compute)[-1]
        assert done["arithmetic"] == f"{compute}-{name}"
        losses[compute] = done["losses"]
    assert losses["int8"] != losses["float32"]
    assert losses["int8"] == pytest.approx(losses["float32"], rel=0.01)
    monkeypatch.setenv("MFT_ISA", SETS[0])
    first = events(*run, "--compute", "float32", "--out", tmp_path / "first")[-1]
    assert losses["float32"] == pytest.approx(first["losses"], rel=1e-5)


def test_a_run_may_move(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To other instructions, which it tells, but not to another way of computing."""
    if len(SETS) < 2:
        pytest.skip("one instruction set")
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 4, "--out", tmp_path / "out"]
    monkeypatch.setenv("MFT_ISA", SETS[-1])
    assert "moved" not in [event["event"] for event in events(*run, "--compute", "int8")]
    monkeypatch.setenv("MFT_ISA", SETS[0])
    moved = [e for e in events(*run, "--compute", "int8", "--resume") if e["event"] == "moved"]
    assert moved == [{"event": "moved", "step": 4, "from": f"int8-{SETS[-1]}", "to": f"int8-{SETS[0]}"}]
    assert "the run was started with compute int8, not float32" in failure(*run, "--compute", "float32", "--resume")


def test_int8_by_default_where_it_is_fast(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where a run was begun in it."""
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    run = ["train", small_bundle, "--data", data, "--seq-len", 32, "--steps", 2]
    for name in SETS:
        monkeypatch.setenv("MFT_ISA", name)
        compute = "float32" if name in WITHOUT_DOT_PRODUCTS else "int8"
        plan = events(*run, "--out", tmp_path / name)[0]
        assert plan["resolved"]["arithmetic"] == f"{compute}-{name}"
        assert plan["options"]["compute"] == compute
    monkeypatch.setenv("MFT_ISA", SETS[0])
    resumed = events(*run, "--out", tmp_path / SETS[-1], "--resume")
    assert resumed[0]["options"]["compute"] == compute


def test_an_instruction_set_that_is_not_there(
    small_bundle: Path, token_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MFT_ISA", "abacus")
    data = token_file(tmp_path / "tokens.safetensors", 250, 32, 20)
    message = failure("train", small_bundle, "--data", data, "--seq-len", 32, "--out", tmp_path / "out")
    expected = f"instruction set abacus: this machine has {' '.join(SETS)}\n"
    assert expected in message
    info = [sys.executable, "-m", "mobile_ft.cli.main", "info", str(small_bundle)]
    assert subprocess.run(info, capture_output=True, text=True).stderr == f"mobile-ft: error: {expected}"


def test_validation_is_in_float32(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    """Whose head needs more scratch here than that of int8."""
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 2)
    run = ["train", smollm2, "--data", data, "--valid", data, "--eval-every", 2, "--steps", 2, "--seq-len", 256]
    losses = [events(*run, "--compute", c, "--lr", 1e-9, "--out", tmp_path / c)[-1] for c in ("float32", "int8")]
    assert losses[0]["best_loss"] == pytest.approx(losses[1]["best_loss"], abs=1e-6)
    assert losses[0]["loss_first"] != pytest.approx(losses[1]["loss_first"], abs=1e-4)


def test_memory_is_no_more_than_of_float32(smollm2: Path, token_file: Callable[..., Path], tmp_path: Path) -> None:
    data = token_file(tmp_path / "tokens.safetensors", 49152, 256, 2)
    run = ["train", smollm2, "--data", data, "--steps", 2, "--seq-len", 256]
    exact, ours = (events(*run, "--compute", c, "--out", tmp_path / c)[-1] for c in ("float32", "int8"))
    assert ours["peak_anon_mb"] <= exact["peak_anon_mb"] + 1
