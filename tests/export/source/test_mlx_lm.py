"""Families as mlx-lm converts and quantizes them: our logits are mlx-lm's own.

Left out are families that mlx-lm does not know or reads only from other forms of config.json, and GLM, whose heads it
rotates as a whole.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from mobile_ft import convert
from mobile_ft.converters.mlx import UNKNOWN
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.lora import LoraConfig, write_adapter
from mobile_ft.model.lora_layers import lora_targets
from mobile_ft.runtime import Model
from tests.hf_models import FAMILIES, random_model

TOKENS = np.random.default_rng(0).integers(0, 250, 41)
GROUP = 32
CONVERTED = [
    *("llama3", "mistral", "ministral3", "smollm3", "ernie4_5", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_next"),
    *("gemma", "gemma2", "gemma3", "lfm2", "lfm2_moe", "granite", "granitemoe", "granitemoehybrid", "granite4"),
    *("granite4_moe", "phi3", "olmo2", "olmoe", "mixtral", "nemotron_h", "iquestcoder"),
]


def values_of(family: str) -> dict[str, Any]:
    """Widths that groups divide, and windows that do not matter, since mlx-lm knows few of them."""
    values: dict[str, Any] = FAMILIES[family].to_dict()
    for key, width in values.items():
        if key.endswith("intermediate_size") and width:
            values[key] = 64 if width <= 64 else 128
    if values.get("sliding_window"):
        values["sliding_window"] = 512
    if family == "granite4":  # mlx-lm normalizes all groups of heads at once, as models with one group have it
        values["mamba_n_groups"] = 1
    if family == "phi3":
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    return values


def as_on_the_hub(family: str, config: dict[str, Any]) -> dict[str, Any]:
    """The older keys, which published models have and mlx-lm expects."""
    rope = config["rope_parameters"] if config.get("rope_parameters") else {}
    if "rope_theta" in rope and family not in ("ministral3", "qwen3_5"):
        scaling = {key: x for key, x in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
        config |= {key: x for key, x in rope.items() if key in ("rope_theta", "partial_rotary_factor")}
        config["rope_scaling"] = scaling if rope.get("rope_type", "default") != "default" else None
        del config["rope_parameters"]
    if family == "gemma3":
        config["rope_theta"] = rope["full_attention"]["rope_theta"]
        config["rope_local_base_freq"] = config.pop("rope_parameters")["sliding_attention"]["rope_theta"]
    if family.startswith("granite") and "layer_types" in config:
        mamba = ("linear_attention", "mamba")
        config["layer_types"] = ["mamba" if kind in mamba else "attention" for kind in config["layer_types"]]
    if family == "lfm2":
        config |= {"block_dim": config["hidden_size"], "block_ff_dim": config["intermediate_size"]}
    if family == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts", config.get("num_experts"))
    if family in ("qwen3_5", "qwen3_next"):
        config["full_attention_interval"] = config["layer_types"].index("full_attention") + 1
    if family == "qwen3_5":
        config = {"model_type": family, "text_config": config, "vision_config": {}}
        config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"]
    return config


@pytest.mark.slow
@pytest.mark.parametrize("family", CONVERTED)
def test_logits(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlx = pytest.importorskip("mlx.core")
    from mlx_lm.tuner.utils import load_adapters
    from mlx_lm.utils import load_model, quantize_model, save_config, save_model

    random_model(type(FAMILIES[family])(**values_of(family))).float().save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps(as_on_the_hub(family, config)))
    model, config = load_model(tmp_path / "hf", lazy=True)
    model.set_dtype(mlx.bfloat16)
    model, config = quantize_model(model, config, GROUP, 4)
    save_model(tmp_path / "mlx", model)
    save_config(config, tmp_path / "mlx" / "config.json")
    model, _ = load_model(tmp_path / "mlx")
    model.set_dtype(mlx.float32)
    theirs = np.array(model(mlx.array(TOKENS[None]))[0])

    monkeypatch.setattr(HfFolder, "write_tokenizer", lambda self, folder: None)
    source = HfFolder(tmp_path / "mlx", "q8_0", "q8_0")
    lora = LoraConfig(3, 6.0, lora_targets(source.config))
    write_bundle(source, lora, 64, 0, tmp_path / "bundle")
    ours = Model(str(tmp_path / "bundle"))
    # mlx-lm multiplies Gemma's embeddings by a root in bfloat16.
    bound = 5e-3 if family == "gemma" else 1e-4
    ours.prepare("", 64)
    assert np.abs(ours.logits(TOKENS, np.arange(41)) - theirs).max() < bound

    rng, adapter = np.random.default_rng(1), load_file(tmp_path / "bundle" / "adapter_model.safetensors")
    adapter = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in adapter.items()}
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", lora, source.base, adapter)
    convert(tmp_path / "bundle", tmp_path / "adapter", tmp_path / "converted", to="mlx", progress=False)
    load_adapters(model, str(tmp_path / "converted"))
    model.set_dtype(mlx.float32)
    ours.prepare(str(tmp_path / "adapter"), 64)
    adapted = np.array(model(mlx.array(TOKENS[None]))[0])
    assert np.abs(adapted - theirs).max() > 0.1
    assert np.abs(ours.logits(TOKENS, np.arange(41)) - adapted).max() < 10 * bound


@pytest.mark.slow
def test_what_mlx_lm_does_not_know() -> None:
    pytest.importorskip("mlx.core")
    from mlx_lm.utils import MODEL_REMAPPING

    for family in UNKNOWN:
        assert find_spec(f"mlx_lm.models.{family}") is None and family not in MODEL_REMAPPING
