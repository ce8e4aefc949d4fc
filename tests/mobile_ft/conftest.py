"""A tiny bundle with a tokenizer, and the command line called within the test's process."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mobile_ft.bundle.description import checksum
from mobile_ft.cli.main import main

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 288,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def model_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face config.json."""
    path = tmp_path_factory.mktemp("model") / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture(scope="session")
def bare_bundle(model_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of random weights for 64 tokens, without a tokenizer. Only to be read."""
    path = tmp_path_factory.mktemp("bundle") / "bare"
    arguments = ["--random-init", "--lora-rank", "4", "--lora-alpha", "8", "--max-seq-len", "64"]
    assert main(["export", str(model_config), "-o", str(path), *arguments]) == 0
    return path


@pytest.fixture
def add_tokenizer(tiny_bundle: Callable[..., Path], chatml: str) -> Callable[[Path], None]:
    """Puts a byte-level tokenizer into a bundle; a chat turn ends with <|im_end|>."""

    def add(bundle: Path) -> None:
        description = json.loads((bundle / "bundle.json").read_text())
        for file in tiny_bundle("tokenizer", chat_template=chatml, eos_token="<|im_end|>").iterdir():
            shutil.copy(file, bundle)
            description["checksums"][file.name] = checksum(file)
        (bundle / "bundle.json").write_text(json.dumps(description))

    return add


@pytest.fixture
def bundle(bare_bundle: Path, add_tokenizer: Callable[[Path], None], tmp_path: Path) -> Path:
    """A copy of it with a tokenizer."""
    path = tmp_path / "tiny.bundle"
    shutil.copytree(bare_bundle, path)
    add_tokenizer(path)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with one short dialogue to learn, the same one held out."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train.jsonl", "valid.jsonl"):
        (folder / name).write_text('{"prompt": "2+2?", "completion": "4, sir"}\n')
    return folder


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs `mobile-ft` with these arguments."""

    def run(*arguments: object) -> Result:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit:  # argparse
            code = int(exit.code or 0)
        return Result(code, *capfd.readouterr())

    return run


@pytest.fixture
def fake_mft_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in place of mft-run."""

    def install(script: str) -> None:
        path = tmp_path / "mft-run"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr("mobile_ft.api.native.mft_run_path", lambda: path)

    return install
