"""Which columns matter, against what a Transformers model's linears are given."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobile_ft.api.checkpoint import Quantization, open_checkpoint
from mobile_ft.errors import UserError
from mobile_ft.export.calibration import column_importance
from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from tests.hf_models import FAMILIES, random_model

TOKENS = np.random.default_rng(0).integers(0, 250, 60).astype(np.int32)
TEXT = "Which of these columns matter? " * 20


def saved(family: str, folder: Path, tokenizer: Path | None = None) -> Any:
    """A model whose weights float16 holds."""
    model = random_model(FAMILIES[family])
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    model.save_pretrained(folder)
    if tokenizer is not None:
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    return model


@pytest.mark.parametrize("family", ["gemma3", "gemma4", "lfm2", "smollm3"])
def test_importance(family: str, tmp_path: Path) -> None:
    model = saved(family, tmp_path).double()
    rows = [TOKENS[:40], TOKENS[40:]]
    squares: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":

            def add(_: Any, inputs: tuple[torch.Tensor], name: str = name) -> None:
                squares[name] = squares.get(name, 0) + inputs[0][0].square().sum(0)

            module.register_forward_pre_hook(add)
    with torch.no_grad():
        for row in rows:
            model(torch.from_numpy(row)[None].long())
    done: list[tuple[int, int]] = []
    ours = dict(column_importance(HfFolder(tmp_path, "f16", "f16"), rows, lambda *layers: done.append(layers)))
    layers = model.config.get_text_config().num_hidden_layers
    assert done == [(layer + 1, layers) for layer in range(layers)]
    assert {f"{name}.weight" for name in squares} == ours.keys()
    for name, total in squares.items():
        np.testing.assert_allclose(ours[f"{name}.weight"], total.numpy() / 60, rtol=1e-4)


def test_what_a_text_leaves_at_zero_counts_a_little(tmp_path: Path) -> None:
    model = saved("qwen3", tmp_path)
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[5] = 0
    model.save_pretrained(tmp_path)
    importance = dict(column_importance(HfFolder(tmp_path, "f16", "f16"), [TOKENS]))
    columns = importance["model.layers.0.self_attn.q_proj.weight"]
    assert columns[5] == pytest.approx(1e-4 * columns.mean(), rel=1e-3)


def test_errors_are_weighed(tmp_path: Path, tiny_bundle: Any) -> None:
    model = saved("qwen3", tmp_path / "model", tiny_bundle())
    (tmp_path / "text").write_text(TEXT)
    plain = open_checkpoint(tmp_path / "model", quantization=Quantization("q4_0"))
    weighed = open_checkpoint(tmp_path / "model", quantization=Quantization("q4_0", None, tmp_path / "text"))
    assert isinstance(weighed, HfCheckpoint)
    name = "model.layers.1.mlp.down_proj.weight"
    expected, columns = model.get_parameter(name).detach().numpy(), weighed.importance[name]

    def error(source: Any, of: np.ndarray | float) -> float:
        return float((((unpack(source.packed(name, 96, 64).data, "q4_0", 64) - expected) ** 2) * of).sum())

    assert error(weighed, columns) < 0.95 * error(plain, columns)
    assert error(weighed, 1.0) > error(plain, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"short", "text: has 5 tokens; a calibration text must have at least 256"),
        (b"\xff" * 1000, "text: not readable as"),
    ],
)
def test_bad_texts(content: bytes, message: str, tmp_path: Path, tiny_bundle: Any) -> None:
    saved("qwen3", tmp_path / "model", tiny_bundle())
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_checkpoint(tmp_path / "model", quantization=Quantization(calibration=tmp_path / "text"))
    with pytest.raises(UserError, match="nowhere: not readable as UTF-8 text"):
        open_checkpoint(tmp_path / "model", quantization=Quantization(calibration=tmp_path / "nowhere"))


def test_only_for_models_in_floats() -> None:
    with pytest.raises(UserError, match="calibration x: applies to models with float weights"):
        open_checkpoint("smollm2-135m", quantization=Quantization(calibration=Path("x")))
    with pytest.raises(UserError, match="quant_embedding q4_0: applies to models with float weights"):
        open_checkpoint("smollm2-135m", quantization=Quantization(embedding="q4_0"))
    with pytest.raises(UserError, match="quant_embedding q5: must be one of f16"):
        Quantization(embedding="q5")
