"""The ONNX model in onnxruntime: whole texts, token by token with a cache, padded batches; and each weight format."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from peft import PeftModel
from safetensors.numpy import load_file, save_file

from mobile_ft import UserError, convert
from mobile_ft.api import convert as api
from mobile_ft.converters.onnx_graph import DATA_FILE, OnnxGraph
from mobile_ft.converters.onnx_matrix import add_matrix, product, rows_of
from mobile_ft.model.formats import FORMATS, unpack
from mobile_ft.runtime import Model, quantize
from tests.tuned_models import TOKENS, Tuned, logits_of, with_rslora

onnxruntime = pytest.importorskip("onnxruntime")
LENGTH = len(TOKENS)


class Session:
    def __init__(self, folder: Path) -> None:
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
        shapes = {x.name: x.shape for x in self.session.get_inputs() if x.name.startswith("past")}
        self.empty = {name: [0 if size == "past" else size for size in shape[1:]] for name, shape in shapes.items()}

    def no_past(self, batch: int = 1) -> dict[str, np.ndarray]:
        return {name: np.zeros((batch, *shape), np.float32) for name, shape in self.empty.items()}

    def run(self, ids: np.ndarray, mask: np.ndarray, positions: np.ndarray, past: dict[str, Any]) -> tuple[Any, Any]:
        """Logits [batch, sequence, vocab], and the past of the next call."""
        tokens = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        outputs = self.session.run(None, {name: x.astype(np.int64) for name, x in tokens.items()} | past)
        return outputs[0], dict(zip(self.empty, outputs[1:], strict=True))


@pytest.fixture
def session(tuned: Tuned, converted: Callable[..., Path]) -> Session:
    return Session(converted(tuned, "onnx"))


def test_whole_text(tuned: Tuned, session: Session) -> None:
    ids, ones = TOKENS[None], np.ones((1, LENGTH))
    logits, _ = session.run(ids, ones, np.arange(LENGTH)[None], session.no_past())
    assert np.abs(logits[0] - tuned.logits).max() < 1e-4


def test_token_by_token(tuned: Tuned, session: Session) -> None:
    past, found = session.no_past(), []
    for i in range(LENGTH):
        logits, past = session.run(TOKENS[None, i : i + 1], np.ones((1, i + 1)), np.array([[i]]), past)
        found.append(logits[0, 0])
    assert np.abs(np.array(found) - tuned.logits).max() < 1e-4


def test_padding_on_the_left_changes_nothing(tuned: Tuned, session: Session) -> None:
    """A second row begins seven tokens later."""
    ids = np.stack([TOKENS, np.concatenate([np.zeros(7, int), TOKENS[:-7]])])
    mask = np.ones((2, LENGTH))
    mask[1, :7] = 0
    positions = np.maximum(np.cumsum(mask, 1) - 1, 0)
    logits, _ = session.run(ids, mask, positions, session.no_past(2))
    assert np.abs(logits[0] - tuned.logits).max() < 1e-4
    assert np.abs(logits[1, 7:] - tuned.logits[:-7]).max() < 1e-4


def test_four_bits_are_those_of_the_bundle(small_bundle: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    rng = np.random.default_rng(0)
    tensors = {n: rng.normal(0, 0.1, x.shape) for n, x in load_file(small_bundle / "adapter_model.safetensors").items()}
    save_file({name: x.astype(np.float32) for name, x in tensors.items()}, adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_bytes((small_bundle / "adapter_config.json").read_bytes())
    ids, positions = np.arange(100, 140), np.arange(40)
    expected = {}
    for name in ("", str(adapter)):
        model = Model(str(small_bundle))
        model.prepare(name, 64)
        expected[name] = model.logits(ids, positions)
    made = convert(small_bundle, adapter, tmp_path / "onnx", to="onnx", progress=False).output
    session = Session(made)
    logits, _ = session.run(ids[None], np.ones((1, 40)), positions[None], session.no_past())
    assert np.abs(expected[""] - expected[str(adapter)]).max() > 0.1
    assert np.abs(logits[0] - expected[str(adapter)]).max() < 1e-4
    nodes = onnx.load(made / "model.onnx", load_external_data=False).graph.node
    assert sum(node.op_type == "MatMulNBits" for node in nodes) == 4 * 7 + 1  # with the head


def test_another_adapter_as_inputs(tuned_of: Callable[[str], Tuned], converted: Callable[..., Path]) -> None:
    """The adapter's tensors under PEFT's names; where none are given, those it was converted with."""
    tuned = tuned_of("llama3")
    session = Session(converted(tuned, "onnx", adapter=tuned.bundle))
    ids, past = TOKENS[None], session.no_past()
    tokens = (ids, np.ones_like(ids), np.arange(LENGTH)[None])
    base, _ = session.run(*tokens, past)
    assert np.abs(base[0] - tuned.logits).max() > 0.01
    logits, _ = session.run(*tokens, past | load_file(tuned.adapter / "adapter_model.safetensors"))
    assert np.abs(logits[0] - tuned.logits).max() < 1e-4


def test_scale_of_rslora(tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], tmp_path: Path) -> None:
    tuned = with_rslora(tuned_of("llama3"), tmp_path)
    expected = logits_of(PeftModel.from_pretrained(deepcopy(tuned.base).double(), tuned.adapter))
    session = Session(converted(tuned, "onnx"))
    logits, _ = session.run(TOKENS[None], np.ones((1, LENGTH)), np.arange(LENGTH)[None], session.no_past())
    assert np.abs(expected - tuned_of("llama3").logits).max() > 0.1
    assert np.abs(logits[0] - expected).max() < 1e-4


class _OneWeight:
    """Stands for a model of one matrix."""

    def __init__(self, dense: np.ndarray, fmt: str) -> None:
        self.data, self.fmt, self.shapes = quantize(dense, fmt), fmt, {"w": dense.shape}
        self.values = unpack(self.data, fmt, len(dense))

    def format_of(self, name: str) -> str:
        return self.fmt

    def packed(self, name: str) -> np.ndarray:
        return self.data


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format(fmt: str, tmp_path: Path) -> None:
    """Products and rows; a group that is all one number is such a group afterwards too."""
    rng = np.random.default_rng(0)
    dense = rng.normal(0, 0.05, (40, 256)).astype(np.float32)
    dense[3, :128] = 0.25
    dense[7] = 0
    model: Any = _OneWeight(dense, fmt)
    x, ids = rng.normal(size=(5, 256)).astype(np.float32), np.array([3, 39, 7])
    with (tmp_path / DATA_FILE).open("wb") as data:
        graph = OnnxGraph(data)
        matrix = add_matrix(graph, model, "w")
        y = product(graph, graph.input("x", np.float32, ["tokens", 256]), matrix)
        rows = rows_of(graph, graph.input("ids", np.int64, ["rows"]), matrix)
        graph.output("y", y, np.float32, ["tokens", 40])
        graph.output("rows", rows, np.float32, ["rows", 256])
    graph.save(tmp_path / "model.onnx", "one")
    onnx.checker.check_model(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found, found_rows = session.run(None, {"x": x, "ids": ids})
    exact = FORMATS[fmt].kind != "q8_1"
    tolerance = 1e-6 if exact else 2**-11  # of float16
    assert np.abs(found_rows - model.values[ids]).max() <= tolerance * np.abs(model.values).max()
    expected = x.astype(np.float64) @ model.values.astype(np.float64).T
    assert np.abs(found - expected).max() < 4 * tolerance * np.abs(expected).max()


def test_without_the_package(
    tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name="onnx")

    monkeypatch.setattr(api, "import_module", missing)
    with pytest.raises(UserError, match=r"to onnx: onnx is not installed; .*`pip install 'mobile-ft\[onnx\]'`"):
        converted(tuned_of("llama3"), "onnx")
