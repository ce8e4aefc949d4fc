"""A training step through the ONNX graphs in onnxruntime against our own: loss and gradients, over packed rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from mobile_ft import convert
from mobile_ft.bundle.description import read_bundle
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.tuned_models import Tuned

onnxruntime = pytest.importorskip("onnxruntime")
TOKENS = np.random.default_rng(0).integers(0, 250, 33)
POSITIONS = np.concatenate([np.arange(20), np.arange(12)])


def run(folder: Path, name: str, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    path = folder / f"{name}.onnx"
    onnx.checker.check_model(str(path))
    assert {node.domain for node in onnx.load(path).graph.node} == {""}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {x.name for x in session.get_inputs()}
    assert wanted <= given.keys()
    outputs = [x.name for x in session.get_outputs()]
    return dict(zip(outputs, session.run(None, {key: given[key] for key in wanted}), strict=True))


def step(folder: Path, tokens: np.ndarray, targets: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """Summed loss, and the gradients of the adapter by PEFT's names."""
    index = json.loads((folder / "training.json").read_text())
    adapter = load_file(folder / index["adapter"])
    x = run(folder, "embed", {"tokens": tokens} | load_file(folder / "embed.safetensors"))["x"]
    given: list[dict[str, Any]] = []
    for unit in index["units"]:
        own = {key: adapter[name] for key, name in unit["adapter"].items()}
        given.append({"x": x, "positions": POSITIONS} | own | load_file(folder / unit["weights"]))
        x = run(folder, f"{unit['kind']}_forward", given[-1])["y"]
    head = run(folder, "head", {"x": x, "targets": targets} | load_file(folder / "head.safetensors"))
    dy = head["dx"]
    gradients: dict[str, np.ndarray] = {}
    for unit, inputs in zip(reversed(index["units"]), reversed(given), strict=True):
        found = run(folder, f"{unit['kind']}_backward", inputs | {"dy": dy})
        dy = found["dx"]
        gradients |= {name: found[f"d.{key}"] for key, name in unit["adapter"].items()}
    return float(head["losses"].sum()), gradients


def check(bundle: Path, adapter: Path, folder: Path) -> None:
    targets = TOKENS[1:].copy()
    targets[[3, 19]] = -100
    trainer = Trainer(Model(str(bundle)), TrainConfig(seq_len=64), str(adapter))
    layers = [True] * read_bundle(bundle).model.num_hidden_layers
    expected = trainer.accumulate(TOKENS[:-1], targets, POSITIONS, layers)
    loss, gradients = step(folder, TOKENS[:-1], targets)
    assert loss == pytest.approx(expected, rel=1e-5)
    ours = trainer.gradients()
    assert gradients.keys() == ours.keys()
    for name, gradient in gradients.items():
        error = np.linalg.norm(gradient - ours[name]) / np.linalg.norm(ours[name])
        assert error < 1e-4, name


def test_step(tuned: Tuned, converted: Callable[..., Path]) -> None:
    check(tuned.bundle, tuned.adapter, converted(tuned, "onnx-training"))


def test_step_in_four_bits(small_bundle: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    rng = np.random.default_rng(0)
    tensors = {n: rng.normal(0, 0.1, x.shape) for n, x in load_file(small_bundle / "adapter_model.safetensors").items()}
    save_file({name: x.astype(np.float32) for name, x in tensors.items()}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_bytes((small_bundle / "adapter_config.json").read_bytes())
    made = convert(small_bundle, adapter, tmp_path / "onnx", to="onnx-training", progress=False).output
    check(small_bundle, adapter, made)
