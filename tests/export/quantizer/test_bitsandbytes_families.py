"""Families whose tensors have other names or forms than a llama's, as bitsandbytes saves them in 4 bits."""

from pathlib import Path
from typing import Any

import bitsandbytes
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.lora_layers import linear_names
from mobile_ft.runtime import Model
from tests.export.quantizer.test_bitsandbytes import dequantized
from tests.hf_models import FAMILIES, random_model

TOKENS = np.random.default_rng(0).integers(0, 250, 41)


def with_values_of(model: Any, quantized: Any) -> Any:
    """Returns `model` with the weights that bitsandbytes has rounded."""
    linears = {n: x for n, x in quantized.named_modules() if isinstance(x, bitsandbytes.nn.Linear4bit)}
    for name, linear in linears.items():
        parameter = model.get_parameter(f"{name}.weight")
        parameter.data.copy_(torch.from_numpy(dequantized(linear)).reshape(parameter.shape))
    assert linears
    return model


_QUICK = ("falcon_h1", "granitemoe", "qwen3_moe")


@pytest.mark.parametrize("family", [pytest.param(x, marks=[] if x in _QUICK else pytest.mark.slow) for x in FAMILIES])
def test_logits(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Weights that stay floats are exact in 16 bits.
    random_model(FAMILIES[family]).half().float().save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    load: Any = AutoModelForCausalLM.from_pretrained
    quantized = load(tmp_path / "plain", quantization_config=config, dtype=torch.float32)
    quantized.save_pretrained(tmp_path / "saved")
    model = with_values_of(load(tmp_path / "plain", dtype=torch.float32), quantized)
    with torch.no_grad():
        theirs = model(torch.from_numpy(TOKENS[None])).logits[0].numpy()

    monkeypatch.setattr(HfFolder, "write_tokenizer", lambda self, folder: None)
    source = HfFolder(tmp_path / "saved", "f16", "f16")
    write_bundle(source, LoraConfig(3, 6.0, linear_names(source.config)), 64, 0, tmp_path / "bundle")
    ours = Model(str(tmp_path / "bundle"))
    ours.prepare("", 64)
    assert np.abs(ours.logits(TOKENS, np.arange(41)) - theirs).max() < 1e-4
