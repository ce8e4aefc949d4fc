"""Quantized checkpoints, exported and run, against Transformers on the weights that they stand for."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedTokenizerFast

from mobile_ft.api.export import export_bundle
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.export.source.hf_model import HfModel
from mobile_ft.model.formats import unpack
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model
from tests.quantized_checkpoints import llama, write_awq, write_gptq, write_mlx
from tests.small_tokenizer import write_small_tokenizer
from tests.targets import ALL_LINEAR

TOKENS = np.random.default_rng(0).integers(0, 250, 41)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "mlx": partial(write_mlx, bits=8, dtype=torch.float16),
    "gptq": write_gptq,
    "awq": partial(write_awq, few_bits=True),
}


def check_logits(bundle: Path, model: Any) -> None:
    ours = Model(str(bundle))
    ours.prepare("", 64)
    with torch.no_grad():
        theirs = model.double()(torch.from_numpy(TOKENS)[None]).logits[0].numpy()
    assert np.abs(theirs).max() > 1
    assert np.abs(ours.logits(TOKENS, np.arange(len(TOKENS))) - theirs).max() < 1e-4


@pytest.mark.parametrize("kind", WRITERS)
def test_logits(kind: str, tmp_path: Path) -> None:
    """Of weights that the bundle holds exactly."""
    folder = write_small_tokenizer(tmp_path / "model")
    model = WRITERS[kind](folder)
    write_bundle(HfFolder(folder, "f16", "f16"), LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, tmp_path / "bundle")
    check_logits(tmp_path / "bundle", model)


def test_a_model_in_memory(tmp_path: Path) -> None:
    """That bitsandbytes quantized, with its tokenizer; its embedding becomes 8 bits."""
    llama().save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config, dtype=torch.float32)
    folder = write_small_tokenizer(tmp_path / "tokenizer")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="</s>")
    made = export_bundle(model, tmp_path / "bundle", tokenizer=tokenizer, max_seq_len=64)
    assert made.formats == ["nf4_g64", "q8_0"]
    assert Tokenizer(tmp_path / "bundle").encode("ab a") == Tokenizer(folder).encode("ab a")
    embedding = HfModel(model, None, "q4_1", "q8_0").packed("model.embed_tokens.weight", 128, 250)
    model.dequantize()
    model.model.embed_tokens.weight.data = torch.from_numpy(unpack(embedding.data, "q8_0", 250))
    check_logits(tmp_path / "bundle", model)


def test_a_tokenizer_goes_with_a_model_in_memory(tmp_path: Path) -> None:
    tokenizer: Any = object()
    with pytest.raises(UserError, match="model: has its own tokenizer; set tokenizer only for a model in memory"):
        export_bundle(tmp_path / "model", tmp_path / "bundle", tokenizer=tokenizer)


def test_what_is_quantized_keeps_its_format(tmp_path: Path) -> None:
    write_gptq(tmp_path / "model")
    with pytest.raises(UserError, match="quant q4_0: .*model is already quantized by gptq"):
        export_bundle(tmp_path / "model", tmp_path / "bundle", quant="q4_0")
