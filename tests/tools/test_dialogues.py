import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")


@pytest.fixture
def dialogues(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    return import_module("dialogues")


def test_to_messages(dialogues: Any) -> None:
    question, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    assert dialogues.to_messages(["a", "b\n"]) == [question, answer]
    assert dialogues.to_messages(["a", "b", "unanswered"]) == [question, answer]
    assert [m["role"] for m in dialogues.to_messages(["a", "b", "c", "d"])] == ["user", "assistant"] * 2
    for odd in (["alone"], ["a", 42], ["a", None], "a string", []):
        assert dialogues.to_messages(odd) == []


def rows_of(folder: Path) -> dict[str, list[str]]:
    return {split: (folder / f"{split}.jsonl").read_text().splitlines() for split in ("train", "valid")}


def test_no_question_is_in_both_splits(dialogues: Any, tmp_path: Path) -> None:
    pytest.importorskip("chatterbot_corpus")
    dialogues.write_data(tmp_path / "one")
    dialogues.write_data(tmp_path / "two")
    assert rows_of(tmp_path / "one") == rows_of(tmp_path / "two")
    questions = {}
    for split, lines in rows_of(tmp_path / "one").items():
        rows = [json.loads(line)["messages"] for line in lines]
        assert len({json.dumps(row) for row in rows}) == len(rows)
        questions[split] = [row[0]["content"].lower() for row in rows]
    assert not set(questions["train"]) & set(questions["valid"])
    share = len(questions["valid"]) / (len(questions["train"]) + len(questions["valid"]))
    assert 0.05 < share < 0.15


def test_topics(dialogues: Any, tmp_path: Path) -> None:
    """Of some topics, their dialogues alone, split as they are in all."""
    pytest.importorskip("chatterbot_corpus")
    dialogues.write_data(tmp_path / "all")
    dialogues.write_data(tmp_path / "some", ["food", "humor"])
    every, some = rows_of(tmp_path / "all"), rows_of(tmp_path / "some")
    for split, rows in some.items():
        assert rows and set(rows) < set(every[split])
