"""What adapters say of their base model: what `from_pretrained` takes for it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from mobile_ft.api.checkpoint import open_checkpoint
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.export.source.hf_model import HfModel
from mobile_ft.model.lora import DECODER, INSIDE, BaseModel
from tests.hf_models import FAMILIES, gemma3_with_vision, random_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Llama; published files do not say their name either."""
    folder = tmp_path / "my-llama"
    random_model(FAMILIES["llama3"]).save_pretrained(folder)
    assert "_name_or_path" not in json.loads((folder / "config.json").read_text())
    return folder


def test_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for path in (folder, Path("my-llama"), folder / "..//my-llama"):
        source = HfFolder(path, "q4_0", "q8_0")
        assert (source.config.name, source.base) == ("my-llama", BaseModel(str(folder)))
    monkeypatch.chdir(folder)
    assert HfFolder(Path("."), "q4_0", "q8_0").base == BaseModel(str(folder))


def test_where_a_file_says_the_model_began(folder: Path) -> None:
    """Which is not the model itself."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": "someone/base"}))
    assert HfFolder(folder, "q4_0", "q8_0").base.name == str(folder)


def test_the_cache_of_the_hub(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--Some-One--My.Model-1B" / "snapshots" / "0123abcd"
    shutil.copytree(folder, snapshot)
    source = HfFolder(snapshot, "q4_0", "q8_0")
    assert (source.config.name, source.base.name) == ("My.Model-1B", "Some-One/My.Model-1B")


def test_a_model_in_memory(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert HfModel(model, None, "q4_0", "q8_0").base == BaseModel(str(folder))
    monkeypatch.chdir(tmp_path)
    source = HfModel(AutoModelForCausalLM.from_pretrained("my-llama"), None, "q4_0", "q8_0")
    assert (source.config.name, source.base) == ("my-llama", BaseModel(str(folder)))
    model.config._name_or_path = model.name_or_path = "someone/my-llama"
    source = HfModel(model, None, "q4_0", "q8_0")
    assert (source.config.name, source.base.name) == ("my-llama", "someone/my-llama")
    assert HfModel(random_model(FAMILIES["llama3"]), None, "q4_0", "q8_0").base.name == "LlamaForCausalLM"


def test_ends_of_a_model_in_memory(tiny_bundle: Any, tmp_path: Path) -> None:
    model = random_model(FAMILIES["llama3"])
    model.config.vocab_size = 260
    model.model.embed_tokens.weight.data = torch.zeros(260, 64)
    model.generation_config = GenerationConfig(eos_token_id=[257, 7], top_k=11)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tiny_bundle("t") / "tokenizer.json"), eos_token="<|im_end|>")
    out = tmp_path / "out"
    out.mkdir()
    HfModel(model, tokenizer, "q4_0", "q8_0").write_tokenizer(out)
    assert Tokenizer(out).end_ids == [259, 257, 7]
    assert json.loads((out / "generation_config.json").read_text())["top_k"] == 11


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_model_with_vision(tmp_path: Path, in_memory: bool) -> None:
    model = gemma3_with_vision()
    model.save_pretrained(tmp_path)
    source = HfModel(model, None, "q4_0", "q8_0") if in_memory else HfFolder(tmp_path, "q4_0", "q8_0")
    assert source.base.modules == INSIDE and INSIDE in {name for name, _ in model.named_modules()}
    text = random_model(FAMILIES["gemma3"])
    assert HfModel(text, None, "q4_0", "q8_0").base.modules == DECODER
    assert DECODER in {name for name, _ in text.named_modules()}


def test_random_weights(folder: Path) -> None:
    for path in (folder, folder / "config.json"):
        assert open_checkpoint(path, random_init=True).base == BaseModel(str(folder))
    assert open_checkpoint("gemma-3-1b", random_init=True).base == BaseModel("gemma-3-1b")
    assert open_checkpoint("gemma-3-4b", random_init=True).base == BaseModel("gemma-3-4b", INSIDE)
