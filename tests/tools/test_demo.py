import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("yaml")
DEMO = Path(__file__).parents[2] / "tools" / "demo.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_to_messages(demo):
    question, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    assert demo.to_messages(["a", "b\n"]) == [question, answer]
    assert demo.to_messages(["a", "b", "unanswered"]) == [question, answer]
    assert [m["role"] for m in demo.to_messages(["a", "b", "c", "d"])] == ["user", "assistant"] * 2
    for odd in (["alone"], ["a", 42], ["a", None], "a string", []):
        assert demo.to_messages(odd) == []


def test_no_question_is_in_both_splits(demo, tmp_path):
    pytest.importorskip("chatterbot_corpus")
    demo.write_data(tmp_path / "one")
    demo.write_data(tmp_path / "two")
    questions = {}
    for split in ("train", "valid"):
        text = (tmp_path / "one" / f"{split}.jsonl").read_text()
        assert text == (tmp_path / "two" / f"{split}.jsonl").read_text()
        rows = [json.loads(line)["messages"] for line in text.splitlines()]
        assert len({json.dumps(row) for row in rows}) == len(rows)
        questions[split] = [row[0]["content"].lower() for row in rows]
    assert not set(questions["train"]) & set(questions["valid"])
    share = len(questions["valid"]) / (len(questions["train"]) + len(questions["valid"]))
    assert 0.05 < share < 0.15


def test_draw(demo, tmp_path):
    series = [3.0 - i / 100 for i in range(40)]
    training = {"losses": series, "memory_mb": {"rss_mb": series, "anon_mb": series}}
    demo.draw(training | {"peak_rss_mb": 4, "planned_mb": 5, "budget_mb": 6}, tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
