from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.api.run_file import read_run_file, write_run_file
from mobile_ft.errors import UserError
from mobile_ft.runtime import TrainConfig

RESOLVED = {"stored_units": "1,2", "mlp_tokens": "128", "threads": "2", "arithmetic": "avx2"}


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


def written(folder: Path, **given: object) -> dict[str, Any]:
    """What is read of the file that a run with these options writes."""
    texts = {name: str(value) for name, value in given.items()}
    options = TrainConfig(**texts).options() | ({"steps": "7", "epochs": "0"} if "epochs" in given else {})
    plan = {"options": options, "resolved": RESOLVED}
    paths = {"bundle": "some.bundle", "data": None, "adapter": None, "valid": "/data/valid.jsonl"}
    write_run_file(folder, plan, texts, paths)
    return read_run_file(folder / "run.yaml")


def test_every_option_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = written(tmp_path, lr=3e-4, budget=300_000_000)
    assert values["bundle"] == str(tmp_path / "some.bundle")
    assert values["valid"] == "/data/valid.jsonl"
    assert "data" not in values and "adapter" not in values and "out" not in values and "suffix_depths" not in values
    assert (values["lr"], values["seq_len"], values["steps"], values["budget"]) == (3e-4, 256, 100, 300_000_000)
    assert {name: str(values[name]) for name in RESOLVED} == RESOLVED
    assert "epochs" not in values
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("lr", [1e-5, 1 / 3, 2e-4, 5e-324, 123456.789])
def test_numbers_read_back_to_the_last_bit(tmp_path: Path, lr: float) -> None:
    assert float(TrainConfig(lr=str(written(tmp_path, lr=lr)["lr"])).options()["lr"]) == lr


def test_epochs_stay_epochs(tmp_path: Path) -> None:
    values = written(tmp_path, epochs=1.5)
    assert values["epochs"] == 1.5
    assert "steps" not in values


def test_text_lists_and_null(config: Callable[[str], Path]) -> None:
    values = read_run_file(config("lr: 2e-4\nbudget: 300MB\nsuffix_depths: [1, 2]\nsteps:\ndata: rows.jsonl\n"))
    assert values == {"lr": "2e-4", "budget": "300MB", "suffix_depths": [1, 2], "data": "rows.jsonl"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate: 1\n", "learning_rate: unknown option; "),
        ("batchsize: 1\n", "batchsize: unknown option; did you mean batch_size?"),
        ("1: 2\n", "1: unknown option"),
        ("data: [1]\n", "data: [1] is not a path"),
        ("- steps\n", "must be a mapping of options"),
        ("", "must be a mapping of options"),
        ("steps: {", "not YAML"),
        ("steps: !!python/object/apply:os.getcwd []\n", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("steps: &a [1]\nlr: *a\n", "not YAML (aliases are not supported; write the value out)"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "not YAML (aliases"),
        ("#" * 70_000, "larger than 65536 bytes"),
        ("steps: !!int ''\n", "not YAML"),
        ("steps: !!timestamp x\n", "not YAML"),
        ("steps: !!bool x\n", "not YAML"),
        ("? [a]\n: b\n", "not YAML"),
        ('data: "a\\0b"\n', "data: 'a\\x00b' is not valid UTF-8 text"),
        ('out: "\\ud800"\n', "out: '\\ud800' is not valid UTF-8 text"),
    ],
)
def test_bad_files_are_named(config: Callable[[str], Path], text: str, message: str) -> None:
    path = config(text)
    with pytest.raises(UserError) as error:
        read_run_file(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run.yaml: No such file"):
        read_run_file(tmp_path / "run.yaml")
