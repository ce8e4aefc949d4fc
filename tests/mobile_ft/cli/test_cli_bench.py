import json
from pathlib import Path

import pytest

import mobile_ft
from tests.mobile_ft.conftest import Cli


def test_bench(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    options = ["-p", "5,20", "-n", 3, "-r", 2, "--seq-len", 32, "--schedule", "suffix", "--json", tmp_path / "out.json"]
    result = cli("bench", bundle, *options)
    assert (result.code, result.err) == (0, "")
    assert "answer, 3 tokens behind 20" in result.out
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    names = [(row["what"], row["tokens"], row["n_prompt"]) for row in rows]
    prompts = [("prompt", 5, None), ("answer", 3, 5), ("prompt", 20, None), ("answer", 3, 20)]
    assert names == [*prompts, ("step", 32, None)]
    for row in rows:
        assert 0 < row["fastest"] <= row["seconds"] <= row["slowest"]
        assert row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"])


def test_prompts_that_fit(bundle: Path) -> None:
    """Of 64 tokens, an answer takes 40; none of the usual prompts is that short."""
    result = mobile_ft.bench(bundle, n_gen=40, repetitions=1, progress=False)
    assert [row.tokens for row in result.rows] == [23, 40, 64]
    assert "answer, 40 tokens behind 23" in repr(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-p", "60"], "n_prompt 60 and n_gen 64: each must be at least 1, and their sum less than the 64 tokens"),
        (["-n", "64"], "n_prompt -1 and n_gen 64"),
        (["-n", "0"], "n_gen 0: must be at least 1"),
        (["-n", str(2**63 - 1), "-p", "1"], f"n_prompt 1 and n_gen {2**63 - 1}: each must be"),
        (["-n", "1", "-p", str(2**63 - 1)], f"n_prompt {2**63 - 1} and n_gen 1: each must be"),
        (["-n", str(2**63 - 1)], f"and n_gen {2**63 - 1}: each must be"),
        (["-r", "0", "-n", "1"], "repetitions 0: must be from 1 to 1000000"),
        (["-r", str(2**63 - 1), "-n", "1"], f"repetitions {2**63 - 1}: must be from 1 to 1000000"),
        (["--kv-bits", "5", "-n", "1"], "kv_bits 5: must be"),
        (["--seq-len", "65"], "seq_len 65 exceeds the 64 tokens"),
        (["--adapter", "absent", "-n", "1"], "absent"),
    ],
)
def test_mistakes(cli: Cli, bundle: Path, options: list[str], message: str) -> None:
    result = cli("bench", bundle, *options)
    assert result.code == 1 and message in result.err


def test_no_prompts(bundle: Path) -> None:
    with pytest.raises(mobile_ft.UserError, match=r"n_prompt \[\]: must have at least one length"):
        mobile_ft.bench(bundle, n_prompt=[], progress=False)
