"""Adapters go both ways: ours into PEFT on the Transformers model, PEFT's into ours, at the same evaluation loss."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mobile_ft.api.export import export_bundle
from mobile_ft.packing import EncodedRow, pack, write_token_file
from mobile_ft.runtime import Model
from tests.peft_adapters import random_adapter
from tests.quantized_checkpoints import llama
from tests.runtime.conftest import summed_loss
from tests.runtime.native import events

ROWS = 6


@pytest.fixture(scope="module")
def data(text_tokens: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tokens.safetensors"
    rows = [text_tokens[i * 40 : i * 40 + 41].astype(np.int32) for i in range(ROWS)]
    write_token_file(path, pack([EncodedRow(r[:-1], r[1:]) for r in rows], 64, 0))
    return path


def peft_loss(model: Any, text_tokens: np.ndarray) -> float:
    with torch.no_grad():
        rows = [text_tokens[i * 40 : i * 40 + 41] for i in range(ROWS)]
        return sum(summed_loss(model, r[:-1], r[1:]).item() for r in rows) / (40 * ROWS)


def test_ours_in_peft(
    smollm2: Path, data: Path, load_base: Callable[[], Any], text_tokens: np.ndarray, tmp_path: Path
) -> None:
    from peft import PeftModel

    before = events("eval", smollm2, "--data", data)[-1]
    run = ["train", smollm2, "--data", data, "--steps", 8, "--seq-len", 64, "--lr", 1e-3, "--out", tmp_path / "out"]
    events(*run)
    after = events("eval", smollm2, "--data", data, "--adapter", tmp_path / "out")[-1]
    assert after["tokens"] == 40 * ROWS
    assert after["loss"] < 0.8 * before["loss"]
    base = load_base()
    assert peft_loss(base, text_tokens) == pytest.approx(before["loss"], abs=1e-3)
    model = PeftModel.from_pretrained(base, tmp_path / "out")
    assert peft_loss(model, text_tokens) == pytest.approx(after["loss"], abs=1e-3)


def test_peft_in_ours(
    smollm2: Path, data: Path, load_base: Callable[[], Any], text_tokens: np.ndarray, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(load_base(), config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        (summed_loss(model, text_tokens[:64], text_tokens[1:65]) / 64).backward()
        optimizer.step()
    model.save_pretrained(tmp_path / "peft")
    ours = events("eval", smollm2, "--data", data, "--adapter", tmp_path / "peft")[-1]
    assert ours["loss"] == pytest.approx(peft_loss(model, text_tokens), abs=1e-3)


def test_a_bundle_starts_from_an_adapter(tiny_bundle: Any, tmp_path: Path) -> None:
    """Of float weights, in float16, which holds them; layers that the adapter leaves out stay as they are."""
    folder, base = tiny_bundle("model"), llama()
    base.save_pretrained(folder)
    settings = {"r": 4, "lora_alpha": 6, "use_rslora": True, "layers_to_transform": [1]}
    model = random_adapter(base, target_modules=["q_proj", "down_proj"], **settings)
    model.save_pretrained(tmp_path / "adapter")
    tokens = np.random.default_rng(0).integers(0, 250, 41)
    with torch.no_grad():
        theirs = model.double()(torch.from_numpy(tokens)[None]).logits[0].numpy()
    out = {"quant": "f16", "quant_embedding": "f16", "max_seq_len": 64}
    made = export_bundle(folder, tmp_path / "bundle", adapter=tmp_path / "adapter", **out)
    assert {name: made.lora[name] for name in ("rank", "alpha", "use_rslora")} == {
        "rank": 4,
        "alpha": 6.0,
        "use_rslora": True,
    }
    ours = Model(str(tmp_path / "bundle"))
    ours.prepare("", 64)
    assert np.abs(ours.logits(tokens, np.arange(len(tokens))) - theirs).max() < 1e-4
    ours.use_adapter(False)
    assert np.abs(ours.logits(tokens, np.arange(len(tokens))) - theirs).max() > 1
