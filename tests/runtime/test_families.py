"""Each family against Transformers on the same quantized weights: logits, gradients, generation."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from mobile_ft.export.bundle import write_bundle
from mobile_ft.model.lora import BaseModel, LoraConfig, write_adapter
from mobile_ft.model.lora_layers import lora_targets
from mobile_ft.runtime import GenerateConfig, Generator, Model, RuntimeFailure, TrainConfig, Trainer
from tests.hf_models import ALIKE, FAMILIES, HfModel, random_model
from tests.runtime.conftest import gradients, relative_error, summed_loss
from tests.runtime.native import events

TOKENS = np.random.default_rng(0).integers(0, 250, 41)


GREEDY = ("--max-tokens", 6, "--compute", "float32")


class Family(NamedTuple):
    bundle: Path
    adapter: Path
    model: Any  # Transformers', in float64


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in FAMILIES],
)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    model = random_model(FAMILIES[request.param])
    source = HfModel(model, folder)
    targets = lora_targets(source.config)
    lora = LoraConfig(3, 6.0, targets, use_rslora=request.param == "llama3")  # PEFT scales as its file says
    write_bundle(source, lora, 64, 0, folder / "bundle")
    rng = np.random.default_rng(1)
    adapter = load_file(folder / "bundle" / "adapter_model.safetensors")
    adapter = {name: (0.1 * rng.standard_normal(x.shape)).astype(np.float32) for name, x in adapter.items()}
    (folder / "adapter").mkdir()
    write_adapter(folder / "adapter", lora, BaseModel(request.param), adapter)
    return Family(folder / "bundle", folder / "adapter", model.double())


@pytest.mark.parametrize("rows", [[41], [1], [2], [17], [3, 1, 20, 17]], ids=str)
def test_logits(family: Family, rows: list[int]) -> None:
    """Of rows packed into one sequence: each as if it were alone."""
    model = Model(str(family.bundle))
    model.prepare("", 64)
    ours = model.logits(TOKENS[: sum(rows)], np.concatenate([np.arange(n) for n in rows]))
    with torch.no_grad():
        parts = torch.from_numpy(TOKENS[: sum(rows)]).split(rows)
        theirs = torch.cat([family.model(part[None]).logits[0] for part in parts]).numpy()
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
        run = events("generate", family.bundle, "--prompt-tokens", ",".join(map(str, prompt)), *GREEDY)
        answer = [event["id"] for event in run if event["event"] == "token"]
        with torch.no_grad():
            logits = family.model(torch.tensor([prompt + answer])).logits[0, length - 1 : -1]
        assert (logits[torch.arange(6), answer] >= logits.max(-1).values - 1e-4).all()
        answers.update(answer)
    assert len(answers) >= 8


@pytest.mark.timeout(60)
@pytest.mark.parametrize("family", ["llama3", "gemma3", "lfm2"], indirect=True)
def test_planning_a_thousand_layers(family: Family, tmp_path: Path) -> None:
    """Three kinds of units that cost differently: more budget is never slower, and never exceeded."""
    bundle = shutil.copytree(family.bundle, tmp_path / "bundle")
    index = bundle / "bundle.json"
    description = json.loads(index.read_text())
    layers = description["model"]["num_hidden_layers"]
    units = [[u for u in description["units"] if u["layer"] == layer] for layer in range(layers)]
    description["units"] = [u | {"layer": layer} for layer in range(1000) for u in units[layer % layers]]
    description["model"]["num_hidden_layers"] = 1000
    if "attn_sliding" in description["kinds"]:
        description["kinds"]["attn_sliding"]["recompute_flops"] = [16000, 100]
    index.write_text(json.dumps(description))
    options = ["plan", bundle, "--seq-len", 64, "--budget", "1"]
    smallest, everything = events(*options, "--variant", "budget=1000GB")
    low, high = smallest["planned_mb"] * 1.05, everything["planned_mb"] * 1.05
    budgets = [low + (high - low) * i / 6 for i in range(7)]
    variants = [x for budget in budgets for x in ("--variant", f"budget={budget}MB")]
    plans = events(*options, *variants)[1:]
    assert all(plan["planned_mb"] <= budget for plan, budget in zip(plans, budgets, strict=True))
    times = [plan["relative_time"] for plan in plans]
    assert all(later <= earlier * 1.001 for earlier, later in pairwise(times)) and times[0] > 1.2 and times[-1] == 1


@pytest.mark.parametrize("family", ["gemma4"], indirect=True)
def test_a_plan_reads_no_weights(family: Family, tmp_path: Path) -> None:
    """Not even Gemma 4's factors of layers: the plan of a known model has none."""
    bundle = shutil.copytree(family.bundle, tmp_path / "bundle")
    begin = json.loads((bundle / "bundle.json").read_text())["weights"]["index_size"]
    with (bundle / "weights.ptd").open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(begin)
        file.truncate(size)
    assert events("plan", bundle, "--seq-len", 64)[0]["planned_mb"] > 0
    with pytest.raises(RuntimeFailure, match="tensor .* does not match its checksum"):
        Model(str(bundle)).prepare("", 64)


def test_a_prompt_that_turns_off(family: Family) -> None:
    """A model that was asked something goes on from it only as far as the next prompt is the same."""

    def new_generator() -> Generator:
        model = Model(str(family.bundle))
        model.prepare("", 64)
        return Generator(model)

    generator = new_generator()
    prompts = [TOKENS[:20].tolist(), TOKENS[:20].tolist(), [*TOKENS[:12].tolist(), 7, 8], TOKENS[20:].tolist()]
    config = GenerateConfig(max_tokens=5, compute="float32")  # int8 rounds by how many tokens are computed at once
    for prompt in [*prompts, *prompts]:
        assert generator.generate(prompt, config) == new_generator().generate(prompt, config)
