"""Adapters for other programs: what each adds to a weight, by that program's own rule, against PEFT's."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from peft import PeftModel
from safetensors.numpy import load_file, save_file

from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.bundle.description import checksum, read_bundle
from mobile_ft.export.adapter import read_adapter
from mobile_ft.model.lora import within_decoder
from mobile_ft.model.lora_layers import linear_names
from tests.tuned_models import TOKENS, Tuned, llama_cpp_tolerance, with_rslora

INSIDE = "base_model.model.model.language_model"


@pytest.fixture(scope="module")
def rslora(tuned_of: Callable[[str], Tuned], tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    return with_rslora(tuned_of("llama3"), tmp_path_factory.mktemp("rslora"))


@pytest.fixture(scope="module")
def changes(rslora: Tuned) -> dict[str, np.ndarray]:
    """{weight: what PEFT adds to it}"""
    model = PeftModel.from_pretrained(rslora.base, rslora.adapter)
    modules = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    with torch.no_grad():
        found = {name: module.get_delta_weight("default").numpy() for name, module in modules.items()}
    model.unload()
    return {name.removeprefix("base_model.model."): change for name, change in found.items()}


def test_peft_names_its_base_model(rslora: Tuned, converted: Callable[..., Path]) -> None:
    out = converted(rslora, "peft")
    config = json.loads((out / "adapter_config.json").read_text())
    bundle = read_bundle(rslora.bundle)
    assert config["base_model_name_or_path"] == bundle.base.name == bundle.model.name != "config"
    assert config["target_modules"] == list(linear_names(bundle.model))


def test_mlx(rslora: Tuned, converted: Callable[..., Path], changes: dict[str, np.ndarray]) -> None:
    out = converted(rslora, "mlx")
    config, tensors = json.loads((out / "adapter_config.json").read_text()), load_file(out / "adapters.safetensors")
    assert (config["fine_tune_type"], config["num_layers"]) == ("lora", 2)
    settings = config["lora_parameters"]
    assert {f"model.layers.{layer}.{key}" for layer in range(2) for key in settings["keys"]} == changes.keys()
    assert tensors.keys() == {f"{name}.lora_{x}" for name in changes for x in "ab"}
    for name, expected in changes.items():
        a, b = tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]
        assert a.shape == (expected.shape[1], settings["rank"])
        np.testing.assert_allclose(settings["scale"] * (a @ b).T, expected, atol=1e-6)


def test_gguf_lora(rslora: Tuned, converted: Callable[..., Path], changes: dict[str, np.ndarray]) -> None:
    """llama.cpp multiplies by alpha over the rank, and wants row 2 i + h of a head where ours is i + h half."""
    reader = GGUFReader(converted(rslora, "gguf-lora"))
    fields = {name: reader.fields[name].contents() for name in reader.fields}
    assert (fields["general.type"], fields["adapter.type"], fields["general.architecture"]) == (
        "adapter",
        "lora",
        "llama",
    )
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    names = {
        **{"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"},
        **{"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"},
        "mlp.down_proj": "ffn_down",
    }
    assert len(tensors) == 2 * len(changes) == 4 * len(names)
    half = np.arange(16)
    turned = np.stack([half, half + 16], 1).reshape(-1)  # of a head of 32 rows
    for name, expected in changes.items():
        _, _, layer, linear = name.split(".", 3)
        a, b = (tensors[f"blk.{layer}.{names[linear]}.weight.lora_{x}"] for x in "ab")
        if linear in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = np.arange(len(expected) // 32)[:, None] * 32
            expected = expected[(heads + turned).reshape(-1)]
        np.testing.assert_allclose(fields["adapter.lora.alpha"] / a.shape[0] * (b @ a), expected, atol=1e-6)


def test_a_model_with_vision(rslora: Tuned, converted: Callable[..., Path], tmp_path: Path) -> None:
    """Transformers and mlx-lm hold its decoder elsewhere; the name of a folder is not that of a file."""
    bundle, adapter = (shutil.copytree(path, tmp_path / path.name) for path in (rslora.bundle, rslora.adapter))
    text = json.loads((bundle / "bundle.json").read_text().replace("base_model.model.model.", f"{INSIDE}."))
    description = text | {"base_model": {"name": "google/gemma", "modules": "model.language_model"}}
    for folder in (bundle, adapter):
        weights = folder / "adapter_model.safetensors"
        save_file(
            {x.replace("base_model.model.model.", f"{INSIDE}."): t for x, t in load_file(weights).items()}, weights
        )
    description["checksums"]["adapter_model.safetensors"] = checksum(bundle / "adapter_model.safetensors")
    (bundle / "bundle.json").write_text(json.dumps(description))
    tuned = rslora._replace(bundle=bundle, adapter=adapter)
    peft, mlx = (converted(tuned, to) for to in ("peft", "mlx"))
    config = json.loads((peft / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "google/gemma"
    pattern = re.compile(config["target_modules"])
    assert pattern.fullmatch("model.language_model.layers.11.self_attn.q_proj")
    assert not pattern.fullmatch("model.vision_tower.encoder.layers.0.self_attn.q_proj")
    assert all(name.startswith(f"{INSIDE}.layers.") for name in load_file(peft / "adapter_model.safetensors"))
    assert json.loads((mlx / "adapter_config.json").read_text())["model"] == "google/gemma"
    names = load_file(mlx / "adapters.safetensors")
    assert all(name.startswith("language_model.model.layers.") for name in names)
    lora, tensors = read_adapter(mlx, read_bundle(bundle).model)
    expected = read_matching_tensors(adapter, read_bundle(bundle))
    assert lora.targets == read_bundle(bundle).lora.targets and len(tensors) == len(expected)
    for name, tensor in expected.items():
        assert np.array_equal(tensors[f"base_model.model.model.{within_decoder(name)}"], tensor)


@pytest.mark.slow
def test_llama_cpp_with_a_gguf_lora(tuned_in_gguf: Tuned, converted: Callable[..., Path]) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    tuned = tuned_in_gguf
    lora, base = converted(tuned, "gguf-lora"), converted(tuned, "gguf", tuned.bundle)
    model = llama_cpp.Llama(str(base), lora_path=str(lora), logits_all=True, n_ctx=64, n_threads=1, verbose=False)
    model.eval(TOKENS.tolist())
    assert np.abs(model.scores[: len(TOKENS)] - tuned.logits).max() < llama_cpp_tolerance(tuned_in_gguf)


@pytest.mark.slow
def test_mlx_lm_with_an_adapter(tuned: Tuned, converted: Callable[..., Path]) -> None:
    pytest.importorskip("mlx.core")
    import mlx.core
    from mlx_lm import load

    adapter, base = converted(tuned, "mlx"), converted(tuned, "hf", tuned.bundle)
    model, _ = load(str(base), adapter_path=str(adapter))
    model.set_dtype(mlx.core.float32)
    logits = np.array(model(mlx.core.array(TOKENS[None]))[0])
    assert np.abs(logits - tuned.logits).max() < 1e-3
