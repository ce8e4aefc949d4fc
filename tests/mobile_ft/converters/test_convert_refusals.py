"""What convert refuses, in one line, with whatever was at its output untouched."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mobile_ft import UserError, convert
from mobile_ft.api.convert import TARGETS, Target
from mobile_ft.converters import gguf_names, hf, mlx
from tests.tuned_models import Tuned


@pytest.fixture
def tuned(tuned_of: Callable[[str], Tuned]) -> Tuned:
    return tuned_of("llama3")


def test_quantization_is_of_gguf(tuned: Tuned, converted: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="quant q4_0 to hf: must be one of .*q4_1, iq4_nl to gguf; f16, nf4 to hf"):
        converted(tuned, "hf", quant="q4_0")
    with pytest.raises(UserError, match="quant q2_k to gguf: must be one of"):
        converted(tuned, "gguf", quant="q2_k")


@pytest.mark.parametrize("to", ["gguf-lora", "gguf", "hf"])
def test_unknown_families_are_named(
    tuned: Tuned, converted: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: Target
) -> None:
    monkeypatch.setattr(gguf_names, "_NAMES", {})
    monkeypatch.setattr(hf, "_CLASSES", {})
    with pytest.raises(UserError, match="does not support model_type llama; supported:"):
        converted(tuned, to)
    assert not list(tmp_path.iterdir())


def test_families_that_mlx_lm_does_not_know(
    tuned: Tuned, converted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlx, "UNKNOWN", ("llama",))
    with pytest.raises(UserError, match="to mlx: mlx-lm does not support llama; use another target"):
        converted(tuned, "mlx")
    monkeypatch.setattr(mlx, "multiplies_weights", lambda family: True)
    with pytest.raises(UserError, match="to mlx: mlx-lm multiplies the weights of a llama; use another target"):
        converted(tuned, "mlx")


@pytest.mark.slow
def test_what_gguf_has_no_words_for(tuned_of: Callable[[str], Tuned], converted: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="GGUF's architecture llama does not support layers with a sliding window"):
        converted(tuned_of("mistral"), "gguf")


@pytest.mark.parametrize("to", TARGETS)
def test_an_adapter_that_is_not_finite(
    tuned: Tuned, converted: Callable[..., Path], tmp_path: Path, to: Target
) -> None:
    adapter = shutil.copytree(tuned.adapter, tmp_path / "adapter")
    tensors = load_file(adapter / "adapter_model.safetensors")
    name = sorted(tensors)[-1]
    tensors[name][-1, -1] = np.nan if to == "peft" else np.inf
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(UserError, match=f"adapter_model.safetensors: tensor {name} has values that are not finite"):
        converted(tuned, to, adapter)
    assert [file.name for file in tmp_path.iterdir()] == ["adapter"]


@pytest.mark.parametrize("to", TARGETS)
def test_other_things_are_not_replaced(
    tuned: Tuned, converted: Callable[..., Path], tmp_path: Path, to: Target
) -> None:
    """A folder of someone's notes."""
    out = tmp_path / to
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(
        UserError, match="(contains notes.txt, which would be deleted|exists and .*); choose another out"
    ):
        converted(tuned, to)
    assert [file.name for file in out.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("to", ["gguf", "hf"])
def test_a_failure_leaves_the_older_output(
    tuned: Tuned, converted: Callable[..., Path], tmp_path: Path, to: Target
) -> None:
    out = converted(tuned, to)
    files = [out] if out.is_file() else sorted(out.iterdir())
    before = [file.read_bytes() for file in files]
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in tuned.bundle.iterdir():
        (bundle / file.name).write_bytes(file.read_bytes())
    description = json.loads((bundle / "bundle.json").read_text())
    description["model"]["vocab_size"] *= 2
    description["hf_settings"]["vocab_size"] *= 2
    (bundle / "bundle.json").write_text(json.dumps(description))
    message = r"weights.ptd: model.embed_tokens.weight has .* bytes, which does not match \[1024, 64\] in f16"
    with pytest.raises(UserError, match=message):
        convert(bundle, tuned.adapter, out, to=to, progress=False)
    assert [file.read_bytes() for file in files] == before
    assert {file.name for file in tmp_path.iterdir()} == {to, "bundle"}


def test_a_matrix_without_a_format(tuned: Tuned, converted: Callable[..., Path], tmp_path: Path) -> None:
    bundle = shutil.copytree(tuned.bundle, tmp_path / "bundle")
    description = json.loads((bundle / "bundle.json").read_text())
    del description["formats"]["model.layers.0.mlp.up_proj.weight"]
    (bundle / "bundle.json").write_text(json.dumps(description))
    message = r"bundle.json: formats has no model.layers.0.mlp.up_proj.weight; export the bundle again"
    with pytest.raises(UserError, match=message):
        converted(tuned._replace(bundle=bundle), "hf")


def test_adapters_of_names_that_the_model_lacks(tuned: Tuned, converted: Callable[..., Path], tmp_path: Path) -> None:
    """A bundle whose own adapter does not fit its model."""
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in tuned.bundle.iterdir():
        (bundle / file.name).write_bytes(file.read_bytes())
    description = json.loads((bundle / "bundle.json").read_text())
    description["model"]["num_hidden_layers"] = 1
    description["hf_settings"]["num_hidden_layers"] = 1
    (bundle / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match="adapter tensor .*layers.1.* belongs to no weight that the bundle adapts"):
        converted(tuned._replace(bundle=bundle), "mlx")
