"""What works without the packages of the extras, and which extra an error names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mobile_ft.errors import not_installed
from tests.small_bundle import TalkingModel, write_small_bundle

# Of the extras, and executorch, of which only the libraries are used.
OPTIONAL = ["torch", "executorch", "gguf", "matplotlib", "onnx", "huggingface_hub", "pyarrow", "transformers", "flwr"]
OPTIONAL += ["starlette", "uvicorn"]
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({OPTIONAL}))  # what is None cannot be imported
import mobile_ft
from mobile_ft.cli.main import main
sys.exit(main())
"""


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("bundle") / "small", TalkingModel)


@pytest.fixture(scope="module")
def adapter(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained without any of them, from rows in `data` beside it."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "data").mkdir()
    rows = [{"prompt": f"hello {i}", "completion": f"hi {i}"} for i in range(20)]
    (folder / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--data", folder / "data", "--steps", 2, "--seq-len", 32, "--out", folder / "adapter"]
    done = command("train", bundle, *options)
    assert done.returncode == 0, done.stderr
    return folder / "adapter"


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "BUNDLE", "--verify"],
        ["plan", "BUNDLE", "--seq-len", "32", "--budget", "200MB"],
        ["data", "BUNDLE", "--data", "DATA"],
        ["eval", "BUNDLE", "--data", "ROWS", "--seq-len", "32", "--adapter", "ADAPTER"],
        ["generate", "BUNDLE", "--adapter", "ADAPTER", "--prompt", "hello", "--max-tokens", "2"],
        *(["convert", "BUNDLE", "--adapter", "ADAPTER", "--to", to, "-o", "OUT"] for to in ("peft", "mlx", "hf")),
    ],
    ids=" ".join,
)
def test_a_bundle_needs_none(arguments: list[str], bundle: Path, adapter: Path, tmp_path: Path) -> None:
    paths = {"BUNDLE": bundle, "DATA": adapter.parent / "data", "ADAPTER": adapter, "OUT": tmp_path / "out"}
    paths["ROWS"] = paths["DATA"] / "train.jsonl"
    done = command(*(paths.get(argument, argument) for argument in arguments))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (["export", "CONFIG", "--random-init", "-o", "OUT"], "torch", "export"),
        (["plan", "CONFIG", "--seq-len", "32"], "torch", "export"),
        (["export", "model.gguf", "-o", "OUT"], "gguf", "gguf"),
        (["train", "BUNDLE", "--data", "DATA", "--seq-len", "32", "--schedule-report", "OUT"], "matplotlib", "plots"),
        (["convert", "BUNDLE", "--adapter", "ADAPTER", "--to", "gguf", "-o", "OUT"], "gguf", "gguf"),
        (["convert", "BUNDLE", "--adapter", "ADAPTER", "--to", "onnx", "-o", "OUT"], "onnx", "onnx"),
        (["convert", "BUNDLE", "--adapter", "ADAPTER", "--to", "executorch", "-o", "OUT"], "torch", "export"),
        (["studio", "OUT"], "starlette", "studio"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_errors_name_the_extra(
    arguments: list[str], package: str, extra: str, bundle: Path, adapter: Path, model_config: Path, tmp_path: Path
) -> None:
    paths = {"BUNDLE": bundle, "DATA": adapter.parent / "data", "ADAPTER": adapter, "OUT": tmp_path / "out"}
    paths |= {"CONFIG": model_config, "model.gguf": tmp_path / "model.gguf"}
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    done = command(*(paths.get(argument, argument) for argument in arguments))
    assert done.returncode != 0
    assert f": {package} is not installed; install it with `pip install 'mobile-ft[{extra}]'`" in done.stderr


def test_a_package_without_an_extra() -> None:
    assert str(not_installed("nowhere", "x")) == "x: nowhere is not installed; install it with `pip install 'nowhere'`"
