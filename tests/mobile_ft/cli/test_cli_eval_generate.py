import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mobile_ft.conftest import Cli


@pytest.fixture
def adapter(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> Path:
    """Trained until the one dialogue of `data` is known by heart."""
    out = tmp_path / "adapter"
    options = ["--steps", 200, "--seq-len", 64, "--lr", "2e-2"]
    assert cli("train", bundle, "--data", data, "--out", out, *options).code == 0
    return out


def test_eval_reports_loss(cli: Cli, bundle: Path, data: Path, tmp_path: Path) -> None:
    report = tmp_path / "eval.json"
    result = cli("eval", bundle, "--data", data, "--json", report)
    assert (result.code, result.err) == (0, "")
    values = json.loads(report.read_text())
    assert set(values) == {"loss", "ppl", "tokens"}
    assert values["tokens"] == len("4, sir") + 2  # one token a byte, <|im_end|>, newline
    assert values["ppl"] == pytest.approx(math.exp(values["loss"]))
    # Random weights of 0.02 say next to nothing: the loss is that of a guess among the vocabulary.
    assert values["loss"] == pytest.approx(math.log(288), rel=0.1)
    assert f"loss {values['loss']:.4f}" in result.out.splitlines()[-1]


def test_adapter_is_used(cli: Cli, bundle: Path, data: Path, adapter: Path, tmp_path: Path) -> None:
    report = tmp_path / "eval.json"
    assert cli("eval", bundle, "--data", data, "--adapter", adapter, "--json", report).code == 0
    # The frozen random head gives no token more than a few times the probability of another.
    assert json.loads(report.read_text())["loss"] < 0.8 * math.log(288)
    assert cli("generate", bundle, "--adapter", adapter, "--prompt", "2+2?").out == "4, sir\n"
    assert cli("generate", bundle, "--adapter", adapter, "--prompt", "2+2?", "--max-tokens", 2).out == "4,\n"


def test_generate_options_reach_the_answer(cli: Cli, bundle: Path, adapter: Path) -> None:
    command = ["generate", bundle, "--adapter", adapter, "--prompt", "2+2?"]
    assert cli(*command, "--stop", "sir").out == "4, \n"
    assert cli(*command, "--stop", "x", "--stop", ",").out == "4\n"
    without = cli(*command, "--no-adapter", "--max-tokens", 6).out
    assert without == cli("generate", bundle, "--prompt", "2+2?", "--max-tokens", 6).out != "4, sir\n"
    likely = ["--temp", 5, "--top-k", 1]
    assert cli(*command, *likely).out == "4, sir\n"
    assert cli(*command, "--temp", 1, "--top-p", 0.01).out == "4, sir\n"
    assert cli(*command, "--temp", 5, "--min-p", 1).out == "4, sir\n"
    assert cli(*command, "--temp", 5, "--seed", 1).out != "4, sir\n"
    assert "the prompt has " in cli(*command, "--system", "B" * 40).err  # there is no room for it


def test_generate_repeats_itself_with_the_same_seed(cli: Cli, bundle: Path) -> None:
    command = ["generate", bundle, "--prompt", "Hi", "--max-tokens", 20, "--temp", 1, "--seed"]
    first, same, other = cli(*command, 1), cli(*command, 1), cli(*command, 2)
    assert (first.code, first.err) == (0, "")
    assert first.out == same.out != other.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "x" * 60], "tokens; "),
        (["--prompt", "\udcff"], "prompt: not UTF-8 text"),
        (["--prompt", "x", "--temp", -1], "temp -1: must not be negative"),
        (["--prompt", "x", "--adapter", "nowhere"], "nowhere/adapter_config.json: "),
    ],
)
def test_generate_refuses(cli: Cli, bundle: Path, options: list[object], message: str) -> None:
    result = cli("generate", bundle, *options)
    assert result.code == 1
    assert message in result.err
    assert result.err.startswith("mobile-ft: error: ")
    assert result.err.count("\n") == 1


def test_eval_refuses(cli: Cli, bundle: Path, data: Path) -> None:
    result = cli("eval", bundle, "--data", data, "--seq-len", 65)
    assert result.code == 1
    assert "seq_len 65 exceeds the 64 tokens" in result.err
    (data / "valid.jsonl").unlink()
    result = cli("eval", bundle, "--data", data)
    assert result.code == 1
    assert "no valid.jsonl" in result.err


def test_loss_that_is_not_finite(cli: Cli, bundle: Path, data: Path, fake_mft_run: Callable[[str], None]) -> None:
    fake_mft_run("""echo '{"event": "done", "loss": null, "ppl": null, "tokens": 3}'""")
    result = cli("eval", bundle, "--data", data)
    assert result.code == 1
    assert "the loss is not finite" in result.err
