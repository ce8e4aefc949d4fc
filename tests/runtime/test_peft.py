"""Adapters go both ways: ours into PEFT on the Transformers model, PEFT's into ours, at the same evaluation loss."""

import json
import shutil
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.api.convert import convert
from mobile_ft.api.export import export_bundle
from mobile_ft.bundle.description import read_bundle
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.errors import MobileFtWarning
from mobile_ft.model.lora import BaseModel
from mobile_ft.runtime import Model
from tests.hf_models import gemma3_with_vision
from tests.peft_adapters import random_adapter
from tests.quantized_checkpoints import llama
from tests.runtime.conftest import summed_loss
from tests.runtime.native import events
from tests.small_tokenizer import small_tokenizer, write_small_tokenizer

ROWS = 6
TOKENS = np.random.default_rng(0).integers(0, 230, 41)
F16: dict[str, Any] = {"quant": "f16", "quant_embedding": "f16", "max_seq_len": 64, "progress": False}
LORA: dict[str, Any] = {"lora_rank": 4, "lora_alpha": 6, "use_rslora": True, "lora_targets": "q_proj,down_proj"}
PEFT: dict[str, Any] = {"r": 4, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "down_proj"]}


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
    model.save_pretrained(str(tmp_path / "peft"))
    ours = events("eval", smollm2, "--data", data, "--adapter", tmp_path / "peft")[-1]
    assert ours["loss"] == pytest.approx(peft_loss(model, text_tokens), abs=1e-3)


def test_a_bundle_starts_from_an_adapter(tmp_path: Path) -> None:
    """Of float weights, in float16, which holds them; layers that the adapter leaves out stay as they are."""
    folder, base = write_small_tokenizer(tmp_path / "model"), llama()
    base.save_pretrained(folder)
    model = random_adapter(base, layers_to_transform=[1], **PEFT)
    model.save_pretrained(str(tmp_path / "adapter"))
    tokens = np.random.default_rng(0).integers(0, 250, 41)
    with torch.no_grad():
        theirs = model.double()(torch.from_numpy(tokens)[None]).logits[0].numpy()
    made = export_bundle(folder, tmp_path / "bundle", adapter=tmp_path / "adapter", **F16)
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


class Exported(NamedTuple):
    folder: Path  # Transformers'
    bundle: Path
    adapter: Path  # as training leaves it
    base: Any


@pytest.fixture(scope="module")
def exported_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    return cache(lambda kind: _exported(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(params=["text", "vision"])
def exported(request: pytest.FixtureRequest, exported_of: Callable[[str], Exported]) -> Exported:
    return exported_of(request.param)


def _exported(kind: str, root: Path) -> Exported:
    base = llama() if kind == "text" else gemma3_with_vision()
    base.save_pretrained(root / "model")
    (root / "model" / "tokenizer.json").write_bytes(small_tokenizer())
    (root / "model" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    export_bundle(root / "model", root / "bundle", **LORA, **F16)
    data = root / "data.safetensors"
    write_token_file(data, pack([EncodedRow(TOKENS[:-1].astype(np.int32), TOKENS[1:].astype(np.int32))], 64, 0))
    options = ["--steps", 3, "--seq-len", 64, "--lr", 0.05]
    events("train", root / "bundle", "--data", data, "--out", root / "adapter", *options)
    return Exported(root / "model", root / "bundle", root / "adapter", base)


def our_logits(bundle: Path, adapter: Path | None = None) -> np.ndarray:
    model = Model(str(bundle))
    model.prepare("" if adapter is None else str(adapter), 64)
    logits: np.ndarray = model.logits(TOKENS, np.arange(len(TOKENS)))
    return logits


def their_logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        logits: np.ndarray = model(torch.from_numpy(TOKENS)[None]).logits[0].float().numpy()
    return logits


@pytest.mark.parametrize("converted", [False, True])
def test_peft_finds_the_base_model_and_every_linear(exported: Exported, tmp_path: Path, converted: bool) -> None:
    from peft import AutoPeftModelForCausalLM

    adapter = exported.adapter
    if converted:
        adapter = convert(exported.bundle, adapter, tmp_path / "peft", progress=False).output
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys|.*unexpected keys")
        model = AutoPeftModelForCausalLM.from_pretrained(adapter, dtype=torch.float32)
    assert model.active_peft_config.base_model_name_or_path == str(exported.folder)
    adapted = {name for name, module in model.named_modules() if hasattr(module, "lora_A")}
    assert len(adapted) == 2 * model.config.get_text_config().num_hidden_layers
    assert not any("vision" in name for name in adapted)
    theirs = their_logits(model)
    assert np.abs(theirs - our_logits(exported.bundle, adapter)).max() < 1e-4
    assert np.abs(theirs - their_logits(exported.base)).max() > 0.1


def test_a_bundle_of_a_peft_adapter_on_the_same_folder(exported: Exported, tmp_path: Path) -> None:
    """PEFT adapts the vision tower's q_proj too, which no text goes through."""
    model = random_adapter(deepcopy(exported.base), **PEFT)
    model.save_pretrained(str(tmp_path / "adapter"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export_bundle(exported.folder, tmp_path / "bundle", adapter=tmp_path / "adapter", **F16)
    vision = [str(w.message) for w in caught if issubclass(w.category, MobileFtWarning)]
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    count = sum("vision_tower" in name for name in tensors)
    left_out = f"adapter_model.safetensors: left out {count} tensors of the vision tower"
    assert len(vision) == bool(count) and all(left_out in message for message in vision)
    assert np.abs(our_logits(tmp_path / "bundle") - their_logits(model)).max() < 1e-4
    own = load_file(tmp_path / "bundle" / "adapter_model.safetensors")
    assert own.keys() == {name for name in tensors if "vision_tower" not in name}


@pytest.mark.slow
def test_mlx_lm_on_the_same_folder(exported: Exported, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core")
    import mlx.core
    from mlx_lm import load

    base = shutil.copytree(exported.folder, tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    text = config.get("text_config", config)
    # mlx-lm reads what published files have, not what Transformers 5 writes.
    old: dict[str, Any] = {"rope_theta": 1e4}
    if text is not config:
        config["vocab_size"] = text["vocab_size"]
        scaling = {"rope_type": "linear", "factor": 8.0}
        old = {"rope_theta": 1e6, "rope_scaling": scaling, "sliding_window_pattern": 2}
    text |= old
    (base / "config.json").write_text(json.dumps(config))
    tokenizer = {"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (base / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    adapter = convert(exported.bundle, exported.adapter, tmp_path / "mlx", to="mlx", progress=False).output
    assert json.loads((adapter / "adapter_config.json").read_text())["model"] == str(exported.folder)
    model, _ = load(str(base), adapter_path=str(adapter))
    model.set_dtype(mlx.core.float32)
    logits = np.array(model(mlx.core.array(TOKENS[None]))[0])
    assert np.abs(logits - our_logits(exported.bundle, exported.adapter)).max() < 1e-3


@pytest.mark.parametrize("prefix", ["model", "model.language_model", "language_model.model"])
def test_the_decoder_may_be_anywhere(exported: Exported, tmp_path: Path, prefix: str) -> None:
    """An adapter trained on the text model alone, or by an older Transformers."""
    adapter = shutil.copytree(exported.adapter, tmp_path / "adapter")
    weights = adapter / "adapter_model.safetensors"
    named = {f"base_model.model.{prefix}.layers.{k.split('.layers.')[1]}": x for k, x in load_file(weights).items()}
    save_file(named, weights)
    assert np.array_equal(our_logits(exported.bundle, adapter), our_logits(exported.bundle, exported.adapter))
    bundle = read_bundle(exported.bundle)
    found, expected = read_matching_tensors(adapter, bundle), read_matching_tensors(exported.adapter, bundle)
    assert found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(exported_of: Callable[[str], Exported], tmp_path: Path, dtype: torch.dtype) -> None:
    """As PEFT saves an adapter of a model in that type; one of its numbers is subnormal."""
    exported = exported_of("text")
    halves, floats = (shutil.copytree(exported.adapter, tmp_path / name) for name in ("halves", "floats"))
    tensors = {name: x.to(dtype) for name, x in load_file(halves / "adapter_model.safetensors").items()}
    next(iter(tensors.values()))[0, 0] = 3e-7
    save_file(tensors, halves / "adapter_model.safetensors")
    save_file({name: x.float() for name, x in tensors.items()}, floats / "adapter_model.safetensors")
    assert np.array_equal(our_logits(exported.bundle, halves), our_logits(exported.bundle, floats))
    out = convert(exported.bundle, halves, tmp_path / "peft", progress=False).output
    written = load_file(out / "adapter_model.safetensors")
    assert written.keys() == tensors.keys()
    assert all(
        written[name].dtype == torch.float32 and torch.equal(written[name], tensors[name].float()) for name in tensors
    )
    export_bundle(exported.folder, tmp_path / "bundle", adapter=halves, **F16)
    assert np.array_equal(our_logits(tmp_path / "bundle"), our_logits(exported.bundle, floats))


def test_bundles_that_do_not_name_their_base_model(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were before: keys are those of a text model, whatever the checkpoint is."""
    monkeypatch.setattr("mobile_ft.export.source.hf_checkpoint.base_model", lambda path: BaseModel("config"))
    bundle = tmp_path / "bundle"
    export_bundle(exported.folder, bundle, **LORA, **F16)
    index = bundle / "bundle.json"
    description = json.loads(index.read_text())
    del description["base_model"]
    index.write_text(json.dumps(description))
    old = read_bundle(bundle)
    assert old.base == BaseModel(old.model.name)
    assert read_matching_tensors(exported.adapter, old).keys() == load_file(bundle / "adapter_model.safetensors").keys()
    assert np.array_equal(our_logits(bundle, exported.adapter), our_logits(exported.bundle, exported.adapter))
    merged = [
        convert(b, exported.adapter, tmp_path / str(i), to="hf").output for i, b in enumerate([bundle, exported.bundle])
    ]
    first, second = (load_file(folder / "model.safetensors") for folder in merged)
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
