import json
import subprocess
import sys
from pathlib import Path

import pytest

from mobile_ft.api.checkpoint import open_checkpoint
from mobile_ft.errors import UserError
from tests.export.small_gguf import small_gguf
from tests.mobile_ft.conftest import Cli


def test_export_prints_what_it_wrote_and_no_noise(model_config: Path, tmp_path: Path) -> None:
    """In its own process, as torch makes its noise while it is imported."""
    out = tmp_path / "out.bundle"
    command: list[str | Path] = [
        "export",
        model_config.parent,
        "--random-init",
        "-o",
        out,
        "--lora-targets",
        "q_proj,v_proj",
        "--use-rslora",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mobile_ft.cli.main", *command], capture_output=True, encoding="utf-8"
    )
    assert (result.returncode, result.stderr) == (0, "")
    for text in (
        "weights.ptd",
        "q4_0, q8_0",
        "q_proj, v_proj",
        "alpha 32, rsLoRA",
        "128 tokens",
        "exported in",
        "tensor 1/",
    ):
        assert text in result.stdout
    description = json.loads((out / "bundle.json").read_text())
    assert description["lora"] == {"rank": 16, "alpha": 32.0, "use_rslora": True, "targets": ["q_proj", "v_proj"]}
    assert description["max_seq_len"] == 128


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "config.json: has no weights; use a Hugging Face folder or a .gguf file, or set random_init"),
        (["--random-init", "--max-seq-len", 7], "max_seq_len 7: must be from 8 to 128 for this model"),
        (["--random-init", "--max-seq-len", 129], "max_seq_len 129: must be from 8 to 128 for this model"),
        (
            ["--random-init", "--lora-targets", "lm_head"],
            "lora_targets lm_head: must be all-linear, or some of q_proj",
        ),
    ],
)
def test_bad_values(cli: Cli, model_config: Path, tmp_path: Path, options: list[object], message: str) -> None:
    result = cli("export", model_config, "-o", tmp_path / "out", *options)
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "gpt2",
            [],
            "gpt2: no such file, folder or built-in model; use smollm2-135m, a .gguf "
            "file, a Hugging Face folder, a model on the hub as OWNER/NAME, or a config.json with random_init",
        ),
        (
            "qwen2.5-0.5b",
            [],
            "qwen2.5-0.5b: has no weights; use a Hugging Face folder or a .gguf file, or set random_init",
        ),
        ("none.gguf", [], "none.gguf: no such file"),
        ("none.json", ["--random-init"], "none.json: no such file"),
        ("smollm2-135m", ["--random-init"], "smollm2-135m: random_init requires a config.json or one of falcon-h1"),
    ],
)
def test_bad_models(cli: Cli, tmp_path: Path, model: str, options: list[str], message: str) -> None:
    result = cli("export", model, "-o", tmp_path / "out", *options)
    assert result.code == 1
    assert result.err.startswith(f"mobile-ft: error: {message}")
    assert result.err.count("\n") == 1


def test_known_models_need_no_file() -> None:
    source = open_checkpoint("gemma-3-4b", random_init=True)
    assert (source.config.name, source.config.hidden_size) == ("gemma-3-4b", 2560)


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        (["--lora-rank", "0"], 1, "lora_rank 0: must be from 1 to 256"),
        (["--lora-rank", "257"], 1, "lora_rank 257: must be from 1 to 256"),
        (["--lora-rank", "x"], 2, "invalid int value: 'x'"),
        (["--lora-alpha", "0"], 1, "lora_alpha 0: must be a positive number"),
        (["--lora-alpha", "inf"], 1, "lora_alpha inf: must be a positive number"),
    ],
)
def test_usage_errors(cli: Cli, model_config: Path, tmp_path: Path, option: list[str], code: int, message: str) -> None:
    result = cli("export", model_config, "--random-init", "-o", tmp_path / "out", *option)
    assert result.code == code
    assert message in result.err


def test_what_is_assumed_of_a_gguf_is_said(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object) -> None:
        raise UserError("stopped here")

    monkeypatch.setattr("mobile_ft.export.bundle.write_weights", stop)
    (tmp_path / "model.gguf").write_bytes(small_gguf("gpt2"))
    result = cli("export", tmp_path / "model.gguf", "-o", tmp_path / "out")
    warning, error = result.err.splitlines()
    assert warning.startswith("mobile-ft: warning: GGUF metadata has no tokenizer.ggml.pre")
    assert error == "mobile-ft: error: stopped here"
