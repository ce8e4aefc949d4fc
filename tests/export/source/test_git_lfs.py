"""Folders of a clone without git-lfs: pointers in place of files are named, with what fetches them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mobile_ft.api.checkpoint import open_checkpoint
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import copy_tokenizer
from tests.hf_models import FAMILIES, random_model

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1234\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    random_model(FAMILIES["llama3"]).save_pretrained(folder, max_shard_size="20KB")
    return folder


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(UserError) as error:
        call(*arguments)
    return str(error.value)


def test_files_of_a_folder(folder: Path) -> None:
    for name in (sorted(folder.glob("*.safetensors"))[-1].name, "model.safetensors.index.json", "config.json"):
        content = (folder / name).read_bytes()
        (folder / name).write_text(POINTER)
        expected = f"{folder / name}: is a git-lfs pointer, not the file itself; run `git lfs pull` in {folder}"
        assert refused(open_checkpoint, folder).startswith(expected)
        (folder / name).write_bytes(content)


def test_weights_in_one_file(folder: Path) -> None:
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model.safetensors").write_text(POINTER)
    assert "model.safetensors: is a git-lfs pointer" in refused(open_checkpoint, folder)


def test_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text(POINTER)
    assert "model.gguf: is a git-lfs pointer, not the file itself" in refused(open_checkpoint, tmp_path / "model.gguf")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_tokenizer(tiny_bundle: Callable[..., Path], tmp_path: Path, name: str) -> None:
    source = tiny_bundle("source")
    (source / name).write_text(POINTER)
    assert refused(copy_tokenizer, source, tmp_path, 260).startswith(f"{source / name}: is a git-lfs pointer")


def test_tokenizer_of_an_older_bundle(tiny_bundle: Callable[..., Path]) -> None:
    source = tiny_bundle()
    (source / "tokenizer.json").write_text(POINTER)
    assert "tokenizer.json: is a git-lfs pointer" in refused(Tokenizer, source)


def test_sentencepiece_alone(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_text(POINTER)
    message = refused(copy_tokenizer, tmp_path, tmp_path, 260)
    assert "tokenizer.json: no such file; save the model's fast tokenizer there" in message
    assert f"tokenizer.model is a git-lfs pointer; first run `git lfs pull` in {tmp_path}" in message
