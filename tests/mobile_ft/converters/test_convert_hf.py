"""The merged folder in Transformers, in our own export, and in pieces."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from mobile_ft import UserError, convert
from mobile_ft.bundle.description import read_bundle
from mobile_ft.converters import hf
from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.formats import unpack
from mobile_ft.model.hf_config import read_hf_config
from mobile_ft.runtime import Model, quantize
from tests.tuned_models import CHAT_TEMPLATE, TEXT, TOKENS, Tuned, logits_of, make_tuned, merged_weights


def test_transformers_and_the_runtime_agree(tuned: Tuned, converted: Callable[..., Path]) -> None:
    merged = AutoModelForCausalLM.from_pretrained(converted(tuned, "hf"), dtype=torch.float32)
    model = Model(str(tuned.bundle))
    model.prepare(str(tuned.adapter), 64)
    ours = model.logits(TOKENS, np.arange(len(TOKENS)))
    assert np.abs(tuned.logits - logits_of(tuned.base)).max() > 0.3
    assert np.abs(logits_of(merged) - ours).max() < 1e-4
    assert np.abs(logits_of(merged.double()) - tuned.logits).max() < 1e-4


@pytest.mark.parametrize("family", ["lfm2", *(pytest.param(x, marks=pytest.mark.slow) for x in ("llama3", "qwen2"))])
def test_nf4_is_what_bitsandbytes_loads(tmp_path: Path, converted: Callable[..., Path], family: str) -> None:
    """What our quantizer made of PEFT's merged weights, from Transformers and in our own export."""
    tuned = make_tuned(family, tmp_path, intermediate_size=192)
    folder = converted(tuned, "hf", quant="nf4")
    source, expected = HfFolder(folder, "f16", "f16"), deepcopy(tuned.base)
    weights = merged_weights(tuned)
    for name, module in expected.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            weight = weights[f"model.{name}.weight"]
            packed = quantize(weight, "nf4_g64")
            module.weight.data = torch.from_numpy(unpack(packed, "nf4_g64", len(weight)))
            taken = source.packed(f"model.{name}.weight", weight.shape[1], weight.shape[0])
            assert taken.format == "nf4_g64" and np.array_equal(taken.data, packed)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, module in loaded.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            assert isinstance(module, Linear4bit)
            packed_weight: Any = module.weight
            found = dequantize_4bit(packed_weight.data, packed_weight.quant_state)
            torch.testing.assert_close(found, expected.model.get_submodule(name).weight.half(), rtol=1e-3, atol=1e-6)
    assert np.abs(logits_of(loaded) - logits_of(expected)).max() < 0.1  # its kernel rounds to bfloat16


def test_nf4_needs_whole_blocks(tuned_of: Callable[[str], Tuned], converted: Callable[..., Path]) -> None:
    with pytest.raises(
        UserError, match=r"quant nf4: .*down_proj.weight has 96 columns; the number must be a multiple of 64"
    ):
        converted(tuned_of("llama3"), "hf", quant="nf4")


def test_our_own_export_reads_it_back(tuned: Tuned, converted: Callable[..., Path]) -> None:
    out = converted(tuned, "hf")
    assert read_hf_config(out / "config.json") == read_bundle(tuned.bundle).model


# Those of the families that only this target and PEFT know.
OTHERS = (
    *("gemma2", "gemma4", "lfm3", "granitemoehybrid", "granite4", "phi3", "glm", "olmo3", "exaone4", "hunyuan"),
    *("granite_swa", "arcee", "olmoe", "granitemoe", "qwen3_moe", "falcon_h1", "granitemoeshared", "granite4_moe"),
    *("mixtral", "qwen2_moe", "qwen3_next", "qwen3_5_moe", "olmo_hybrid"),
)


@pytest.mark.parametrize(
    "family", ["qwen3_5", "lfm2_moe", "nemotron_h", *(pytest.param(x, marks=pytest.mark.slow) for x in OTHERS)]
)
def test_other_families(tmp_path: Path, converted: Callable[..., Path], family: str) -> None:
    tuned = make_tuned(family, tmp_path)
    out = converted(tuned, "hf")
    merged = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    if hasattr(merged, "set_experts_implementation"):
        merged.set_experts_implementation("eager")  # the only one in float64
    assert np.abs(tuned.logits - logits_of(tuned.base)).max() > 0.1
    assert np.abs(logits_of(merged.double()) - tuned.logits).max() < 1e-4
    assert read_hf_config(out / "config.json") == read_bundle(tuned.bundle).model


def test_a_bundle_of_an_earlier_version(tuned_of: Callable[[str], Tuned], tmp_path: Path) -> None:
    bundle = shutil.copytree(tuned_of("llama3").bundle, tmp_path / "bundle")
    description = json.loads((bundle / "bundle.json").read_text())
    del description["hf_settings"]
    (bundle / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match="written by an earlier version; export the model again"):
        convert(bundle, tuned_of("llama3").adapter, tmp_path / "hf", to="hf", progress=False)
    description["hf_settings"] = json.loads((tuned_of("llama3").bundle / "bundle.json").read_text())["hf_settings"]
    description["hf_settings"]["rms_norm_eps"] = 0.5
    (bundle / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match="hf_settings do not describe the model"):
        convert(bundle, tuned_of("llama3").adapter, tmp_path / "hf", to="hf", progress=False)


def test_tokenizer_comes_along(tuned: Tuned, converted: Callable[..., Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted(tuned, "hf"))
    assert tokenizer.decode(tokenizer(TEXT)["input_ids"], skip_special_tokens=True) == TEXT
    assert tokenizer.chat_template == CHAT_TEMPLATE


def test_large_models_are_split(tuned: Tuned, converted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = converted(tuned, "hf")
    expected = AutoModelForCausalLM.from_pretrained(whole).state_dict()
    monkeypatch.setattr(hf, "_MOST_BYTES", 70_000)
    out = converted(tuned, "hf")  # over the whole one
    files = sorted(out.glob("*.safetensors"))
    assert len(files) > 2 and not (out / "model.safetensors").exists()
    assert all(file.stat().st_size < 80_000 for file in files)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        with safe_open(out / file, framework="pt") as opened:
            assert torch.equal(opened.get_tensor(name), expected[name])
    assert index["metadata"]["total_size"] == sum(
        x.nbytes for name, x in expected.items() if name in index["weight_map"]
    )
    loaded = AutoModelForCausalLM.from_pretrained(out).state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in expected.items())


def test_rotary_factors_of_a_gguf_are_recognised(
    tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Llama 3.1's, of which a bundle out of a GGUF has the frequencies alone."""
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=scaling | {"rope_theta": 10000.0})
    frequencies = LlamaRotaryEmbedding(config).inv_freq.numpy()
    monkeypatch.setattr(FineTuned, "inv_freq", lambda model, layer: frequencies)
    out = converted(tuned_of("llama3"), "hf")
    written = json.loads((out / "config.json").read_text())
    assert written["rope_parameters"] == scaling | {"rope_theta": 10000.0} and "rope_scaling" not in written
    frequencies[3] *= 0.9
    with pytest.raises(UserError, match="config.json cannot represent its rotary frequencies"):
        converted(tuned_of("llama3"), "hf")


@pytest.mark.parametrize(
    ("to", "quant"), [("hf", None), ("gguf", None), ("gguf-lora", None), ("gguf", "iq4_nl"), ("hf", "nf4")]
)
def test_numbers_too_large_for_the_target(
    tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], tmp_path: Path, to: str, quant: str | None
) -> None:
    """A merged weight above what float16 holds; float32 adapters hold it."""
    tuned = make_tuned("llama3", tmp_path, intermediate_size=192) if quant == "nf4" else tuned_of("llama3")
    adapter = shutil.copytree(tuned.adapter, tmp_path / "large")
    tensors = load_file(adapter / "adapter_model.safetensors")
    name = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight"
    tensors[name][:] = 1e9
    save_file(tensors, adapter / "adapter_model.safetensors")
    if to == "gguf-lora":
        assert converted(tuned, to, adapter).is_file()
        return
    fmt = "iq4_nl" if quant == "iq4_nl" else "float16"
    with pytest.raises(UserError, match=f"layers.1.mlp.up_proj.weight: has values that are .*too large for {fmt}"):
        converted(tuned, to, adapter, quant=quant)
    assert not (tmp_path / to).exists()
    assert not list(tmp_path.glob(".*"))  # nothing half-written


def test_damaged_bundles_are_refused(
    tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], tmp_path: Path
) -> None:
    tuned = tuned_of("llama3")
    bundle = shutil.copytree(tuned.bundle, tmp_path / "bundle")
    with (bundle / "weights.ptd").open("r+b") as file:
        file.seek(-5000, 2)
        file.write(b"damage")
    with pytest.raises(UserError, match="weights.ptd: the checksum of .* does not match"):
        converted(tuned._replace(bundle=bundle), "hf")
