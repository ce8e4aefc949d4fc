"""A tokenizer that cannot be used, or does not fit the model, is refused at export, before weights are written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from mobile_ft.errors import UserError
from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.lora import LoraConfig
from tests.hf_models import FAMILIES, random_model
from tests.targets import ALL_LINEAR

TOKENS = 260  # of tiny_bundle's tokenizer


class WrittenError(Exception):
    """Weights would be written now."""


@pytest.fixture
def make(tiny_bundle: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A model's folder with so many rows in the embedding, and a tokenizer."""

    def stop(*arguments: object) -> None:
        raise WrittenError

    monkeypatch.setattr("mobile_ft.export.bundle.write_weights", stop)

    def make(family: str = "llama3", vocab_size: int = TOKENS, **config: Any) -> Path:
        changed = type(FAMILIES[family])(**FAMILIES[family].to_dict() | {"vocab_size": vocab_size})
        random_model(changed).save_pretrained(tmp_path / "model")
        for file in tiny_bundle("tokenizer", **config).iterdir():
            shutil.copy(file, tmp_path / "model")
        return tmp_path / "model"

    return make


def export(folder: Path) -> None:
    write_bundle(HfFolder(folder, "q4_0", "q8_0"), LoraConfig(4, 8.0, ALL_LINEAR), 32, 0, folder.parent / "bundle")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        export(folder)
    assert [path.name for path in folder.parent.iterdir() if "bundle" in path.name] == []
    return str(error.value)


def test_what_is_no_tokenizer(make: Callable[..., Path]) -> None:
    folder = make()
    with pytest.raises(WrittenError):
        export(folder)
    (folder / "tokenizer.json").write_text('{"model": 1}')
    assert refusal(folder).startswith(f"{folder / 'tokenizer.json'}: not a Hugging Face tokenizer: ")
    (folder / "tokenizer.json").write_text("")
    assert refusal(folder).startswith(f"{folder / 'tokenizer.json'}: not a Hugging Face tokenizer: ")


def test_settings_that_cannot_be_used(make: Callable[..., Path]) -> None:
    folder = make()
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    for change, message in (
        ({"eos_token": None}, "eos_token must be a token of the vocabulary that ends a text"),
        ({"chat_template": "{% for"}, "chat_template is not a Jinja template"),
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | change))
        assert refusal(folder).startswith(f"{folder / 'tokenizer_config.json'}: {message}")


def add(folder: Path, token: str, special: bool) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=special)])
    tokenizer.save(str(folder / "tokenizer.json"))


def test_tokens_beyond_the_embedding(make: Callable[..., Path]) -> None:
    folder = make()
    add(folder, "<call>", special=True)
    message = f"added token '<call>' has id {TOKENS}, but the model's embedding has only {TOKENS} rows (vocab_size)"
    assert refusal(folder).startswith(f"{folder / 'tokenizer.json'}: {message}, for ids up to {TOKENS - 1}; resize")


def test_tokens_beyond_it_that_no_text_holds(make: Callable[..., Path]) -> None:
    """A token for padding; and <image_soft_token>, which Gemma 3 with 1B has though it sees no images."""
    padded = make(pad_token="<pad>")
    add(padded, "<pad>", special=True)
    with pytest.raises(WrittenError):
        export(padded)


def test_tokens_of_a_family_with_vision(make: Callable[..., Path]) -> None:
    folder = make("gemma3")
    add(folder, "<image_soft_token>", special=True)
    with pytest.raises(WrittenError):
        export(folder)
    add(folder, "<mine>", special=False)
    assert f"added token '<mine>' has id {TOKENS + 1}" in refusal(folder)
