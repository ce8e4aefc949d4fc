"""Qwen2, Llama 3 and Gemma 3 against Transformers on the same quantized weights: logits, gradients, generation."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from mobile_ft.export.bundle import write_bundle
from mobile_ft.lora import ALL_LINEAR, LoraConfig, write_adapter
from mobile_ft.runtime import Model, TrainConfig, Trainer
from tests.hf_models import FAMILIES, HfModel, random_model
from tests.runtime.conftest import gradients, relative_error, summed_loss
from tests.runtime.native import events

TOKENS = np.random.default_rng(0).integers(0, 250, 41)


class Family(NamedTuple):
    bundle: Path
    adapter: Path
    model: Any  # Transformers', in float64


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    model = random_model(FAMILIES[request.param])
    lora = LoraConfig(3, 6.0, ALL_LINEAR, use_rslora=request.param == "llama3")  # PEFT scales as its file says
    write_bundle(HfModel(model, folder), lora, 64, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    adapter = load_file(folder / "bundle" / "adapter_model.safetensors")
    adapter = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in adapter.items()}
    (folder / "adapter").mkdir()
    write_adapter(folder / "adapter", lora, request.param, adapter)
    return Family(folder / "bundle", folder / "adapter", model.double())


def test_logits(family: Family) -> None:
    model = Model(str(family.bundle))
    model.prepare("", 64)
    ours = model.logits(TOKENS, np.arange(len(TOKENS)))
    with torch.no_grad():
        theirs = family.model(torch.from_numpy(TOKENS)[None]).logits[0].numpy()
    assert theirs.std() > 0.3
    assert np.abs(ours - theirs).max() < 1e-4


def test_gradients(family: Family) -> None:
    from peft import PeftModel

    peft = PeftModel.from_pretrained(family.model, family.adapter, is_trainable=True).double()
    expected = summed_loss(peft, TOKENS[:-1], TOKENS[1:])
    expected.backward()
    for backward in ("recompute", "store"):
        trainer = Trainer(Model(str(family.bundle)), TrainConfig(seq_len=64, backward=backward), str(family.adapter))
        layers = [True] * peft.config.num_hidden_layers
        loss = trainer.accumulate(TOKENS[:-1], TOKENS[1:], np.arange(len(TOKENS) - 1), layers)
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        ours, theirs = trainer.gradients(), gradients(peft)
        assert set(ours) == set(theirs)
        for name, gradient in theirs.items():
            assert relative_error(ours[name], gradient) < 1e-4, name
    peft.unload()


def test_generation_equals_the_full_forward(family: Family) -> None:
    """Past the window, one token at a time: each is the likeliest after all before it."""
    answers = set()
    for length in range(5, 41, 5):
        prompt = TOKENS[:length].tolist()
        run = events("generate", family.bundle, "--prompt-tokens", ",".join(map(str, prompt)), "--max-tokens", 6)
        answer = [event["id"] for event in run if event["event"] == "token"]
        with torch.no_grad():
            logits = family.model(torch.tensor([prompt + answer])).logits[0, length - 1 : -1]
        assert (logits[torch.arange(6), answer] >= logits.max(-1).values - 1e-4).all()
        answers.update(answer)
    assert len(answers) > 8
