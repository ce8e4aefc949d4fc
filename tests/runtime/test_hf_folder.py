"""A Hugging Face folder, exported and run, against Transformers on the same weights."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobile_ft.api.export import export_bundle
from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import Model
from tests.hf_models import FAMILIES, random_model
from tests.small_tokenizer import write_small_tokenizer
from tests.targets import ALL_LINEAR

TOKENS = np.random.default_rng(0).integers(0, 250, 41)


@pytest.fixture(scope="module")
def model() -> Any:
    """Gemma 3 has most of the traits. Its weights are numbers of float16."""
    model = random_model(FAMILIES["gemma3"])
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    return model


def test_logits(model: Any, tiny_bundle: Any, tmp_path: Path) -> None:
    """In float16, which holds the weights as they are."""
    folder = tiny_bundle("model")
    model.save_pretrained(folder)
    source = HfFolder(folder, "f16", "f16")
    write_bundle(source, LoraConfig(4, 8.0, ALL_LINEAR), 64, 0, tmp_path / "bundle")
    ours = Model(str(tmp_path / "bundle"))
    ours.prepare("", 64)
    with torch.no_grad():
        theirs = copy.deepcopy(model).double()(torch.from_numpy(TOKENS)[None]).logits[0].numpy()
    assert np.abs(ours.logits(TOKENS, np.arange(len(TOKENS))) - theirs).max() < 1e-4


def test_four_bits_by_default(model: Any, tiny_bundle: Any, tmp_path: Path) -> None:
    folder = tiny_bundle("model")
    model.save_pretrained(folder)
    made = export_bundle(folder, tmp_path / "bundle", max_seq_len=16)
    linears, tables = made.summary()[1]["F32 stored as iq4_nl"], made.summary()[1]["F32 stored as q8_0"]
    assert "relative error" in linears and "relative error" in tables
    assert sum(conversion["weights"] for conversion in made.conversions) == sum(
        p.numel() for name, p in model.named_parameters() if p.ndim == 2
    )


@pytest.mark.parametrize("quant", ["q5_0", "q4_1_g256", ""])
def test_formats_that_are_not(model: Any, tmp_path: Path, quant: str) -> None:
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match=f"quant {quant}: must be one of "):
        export_bundle(tmp_path / "model", tmp_path / "bundle", quant=quant)


def test_a_group_that_does_not_divide_rows(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(write_small_tokenizer(tmp_path / "model"))
    with pytest.raises(UserError, match="q_proj.weight: 64 columns: a q4_1_g128 weight requires a multiple of 128"):
        export_bundle(tmp_path / "model", tmp_path / "bundle", quant="q4_1_g128")


def test_other_models_have_formats_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quant q4_0: applies to models with float weights"):
        export_bundle("qwen2.5-0.5b", tmp_path / "bundle", quant="q4_0", random_init=True)
