"""Paths of any characters, in processes whose locale knows ASCII alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mobile_ft.api.run_file import read_run_file
from mobile_ft.files.path_text import path_text, text_path

NAME = "Grüße 🙂 'zwei' \"q\""
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.fixture
def folder(bundle: Path, data: Path, tmp_path: Path) -> Path:
    """With `bündel` and `däten`."""
    folder = tmp_path / NAME
    folder.mkdir()
    shutil.move(bundle, folder / "bündel")
    shutil.move(data, folder / "däten")
    return folder


def run(script: str, *arguments: object) -> str:
    """What a script prints under an ASCII locale without UTF-8 mode, where it has surrogates in its arguments."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    check = "import sys; assert sys.getfilesystemencoding() == 'ascii'\n"
    command = [sys.executable, "-c", check + script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, env=keep | ASCII)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


TRAIN = "import mobile_ft; mobile_ft.train(*sys.argv[1:], steps=2, seq_len=32, progress=False, in_process={})"
COMMAND = "from mobile_ft.cli.main import main; sys.exit(main(sys.argv[1:]))"
REPEAT = ("train", "--config")


@pytest.mark.parametrize("in_process", [False, True])
def test_a_run_is_repeated(folder: Path, in_process: bool) -> None:
    run(TRAIN.format(in_process), folder / "bündel", folder / "däten", folder / "äus")
    values = yaml.safe_load((folder / "äus" / "run.yaml").read_text(encoding="utf-8"))
    assert (values["bundle"], values["data"]) == (str(folder / "bündel"), str(folder / "däten"))
    assert read_run_file(folder / "äus" / "run.yaml")["bundle"] == str(folder / "bündel")
    run(COMMAND, *REPEAT, folder / "äus" / "run.yaml", "--out", folder / "nöch")
    for name in ("adapter_model.safetensors", "run.yaml"):
        assert (folder / "äus" / name).read_bytes() == (folder / "nöch" / name).read_bytes()


def test_what_uses_an_adapter(folder: Path) -> None:
    script = """
import mobile_ft
bundle, data, out = sys.argv[1:]
mobile_ft.evaluate(bundle, data)
mobile_ft.generate(bundle, "x", adapter=bundle, max_tokens=1)
mobile_ft.convert(bundle, bundle, out)
"""
    run(script, folder / "bündel", folder / "däten", folder / "öut")
    assert (folder / "öut" / "adapter_model.safetensors").is_file()


def test_the_command_leaves_ascii(folder: Path) -> None:
    """As Python does by itself, unless PYTHONUTF8 is 0."""
    script = "from mobile_ft.cli.main import main; sys.exit(main())"
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; {script}", "info", folder / "bündel", "--json", folder / "ö.json"],
        capture_output=True,
        env={key: value for key, value in os.environ.items() if key == "PATH"} | ASCII,
    )
    assert shown.returncode == 0, shown.stderr
    assert "bündel" in shown.stdout.decode()
    assert json.loads((folder / "ö.json").read_text())["bundle"] == str(folder / "bündel")


def test_texts_of_paths() -> None:
    for path in ("a", NAME, "\udcff"):
        assert path_text(path) == path == text_path(path)
    script = (
        "from mobile_ft.files.path_text import *; a = sys.argv[1]; b = path_text(a); print(ascii([a, b, text_path(b)]))"
    )
    assert eval(run(script, "ü")) == ["\udcc3\udcbc", "ü", "\udcc3\udcbc"]  # noqa: S307
