"""`mobile-ft data`: what training would learn of data."""

import json
import re
from pathlib import Path

import pytest

from mobile_ft import inspect_data
from mobile_ft.api.data import histogram
from tests.mobile_ft.conftest import Cli


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"prompt": "q", "completion": "c" * 90},
        {"prompt": "q" * 90, "completion": "c"},
        {"text": "<html> text"},
        {"text": "<html> text"},
        {"txt": "bad"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "valid.jsonl").write_text('{"text": "<html> text"}\n{"text": "new"}\n')
    return tmp_path


def test_rows_as_text_with_what_is_learned(cli: Cli, bundle: Path, folder: Path, tmp_path: Path) -> None:
    page, values = tmp_path / "data.html", tmp_path / "data.json"
    result = cli(*("data", bundle, "--data", folder, "--seq-len", 64, "--rows", 4, "--report", page, "--json", values))
    assert result.code == 0
    assert "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[[b<|im_end|>\n]]" in result.out
    assert "train.jsonl:1: chat messages, 3 of " in result.out
    assert result.out.count("[truncated here]") == 2
    assert 'train.jsonl:6: the row has "txt"; it must have' in result.err
    assert "valid.jsonl:1: this row of valid is also in train" in result.err
    flat = " ".join(result.out.split())
    assert "1 truncated, 1 dropped, 1 malformed, 1 duplicated" in flat and "1 rows of valid are also in train" in flat
    found = json.loads(values.read_text())
    train = found["splits"]["train"]
    assert (train["rows"], train["truncated"], train["dropped"], train["bad"], train["repeated"]) == (6, 1, 1, 1, 1)
    assert train["forms"] == {"chat messages": 1, "prompt and completion": 2, "text": 2}
    assert len(train["lengths"]) == 5 and found["in_both_count"] == 1
    text = page.read_text()
    assert "&lt;|im_start|&gt;user" in text and "<mark>b&lt;|im_end|&gt;\n</mark>" in text and "<html> text" not in text
    assert not re.search(r'(src|href)="?http', text)


def test_counts_are_those_of_a_run(bundle: Path, folder: Path) -> None:
    from mobile_ft.bundle.description import read_bundle, read_tokenizer
    from mobile_ft.data.prepare import prepare

    report = inspect_data(bundle, folder, seq_len=64).splits["train"]
    tokenizer = read_tokenizer(read_bundle(bundle))
    stats = prepare(folder, "train", tokenizer, 64, 0, folder / "tokens", options={"on_bad_row": "skip"})
    assert (report.sequences, report.tokens, report.learned) == (stats.sequences, stats.tokens, stats.target_tokens)


def test_of_a_model_that_is_no_bundle(cli: Cli, folder: Path) -> None:
    result = cli("data", "smollm2-135m", "--data", folder, "--rows", 1)
    assert result.code == 0 and "You are a helpful AI assistant named SmolLM" in result.out


def test_preferences_and_mistakes(cli: Cli, bundle: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "p", "chosen": "c", "rejected": "r"}')
    result = cli("data", bundle, "--data", rows, "--loss", "dpo")
    assert "[[c<|im_end|>\n]]" in result.out and "[[r<|im_end|>\n]]" in result.out
    assert cli("data", bundle, "--data", rows).code == 1
    result = cli("data", bundle, "--data", rows, "--report", tmp_path / "no" / "x.html")
    assert result.code == 1 and "--report" in result.err


def test_histogram() -> None:
    assert histogram([]) == []
    assert histogram([0, 1, 1, 5]) == [(0, 1, 1), (1, 2, 2), (2, 3, 0), (3, 4, 0), (4, 5, 0), (5, 6, 1)]
    bins = histogram(list(range(1000)))
    assert len(bins) == 20 and sum(count for _, _, count in bins) == 1000
