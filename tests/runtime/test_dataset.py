"""Training data that grows on the device: the same token files as Python makes, and rows that are never lost."""

import json
import random
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.data.prepare import DataStats, Loss, prepare
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.runtime import Dataset, RuntimeFailure, TrainConfig
from tests.chat_templates import published
from tests.runtime.native import events, failure
from tests.runtime.test_bundle_text import folder_of
from tests.runtime.test_tokenizer import SENTENCES
from tests.small_bundle import CONFIG, write_small_bundle

Row = dict[str, Any]


def write_bundle(folder: Path, bos: bool) -> Path:
    """Of a small model that reads text as SmolLM2 does."""

    class Model(RandomModel):
        def write_tokenizer(self, folder: Path) -> None:
            folder_of("smollm2", published("chatml"), folder, bos)

    config = replace(CONFIG, vocab_size=450)  # as many tokens as the tokenizer has
    return write_small_bundle(folder, Model, config)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("dataset") / "bundle", bos=False)


def chat(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def mixed_rows(count: int) -> list[Row]:
    """All kinds but preferences, some with weights, some too long, some with nothing to learn."""
    random.seed(3)
    rows: list[Row] = []
    for i in range(count):
        words = " ".join(random.choice(SENTENCES) for _ in range(random.randint(1, 4)))
        rows += [
            {"messages": chat(("system", "Be brief."), ("user", words), ("assistant", f"{i} é")), "text": None},
            {"prompt": words, "completion": f" {i}", "weight": i % 3},
            {"question": f"{i}?", "answer": words},
            {"text": words * random.randint(0, 5)},
        ]
    return rows


def preferences(count: int) -> list[Row]:
    rows: list[Row] = []
    for i in range(count):
        prompt = chat(("user", SENTENCES[i % len(SENTENCES)]))
        good, bad = chat(("assistant", f"yes {i}")), chat(("assistant", "no"))
        rows += [
            {"prompt": f"{i}?", "chosen": "yes " * i, "rejected": "no", "weight": 0.5 + i},
            {"prompt": prompt, "chosen": good, "rejected": bad},
            {"chosen": prompt + good, "rejected": prompt + bad},
            {"prompt": "Which?", "chosen": good, "rejected": bad},
        ]
    return rows


def labelled(count: int) -> list[Row]:
    rows: list[Row] = []
    for i in range(count):
        turns = chat(("user", "Hello"), ("assistant", "Hi"), ("user", f"{i}?"), ("assistant", f"yes {i}"))
        rows += [
            {"prompt": f"{i}?", "completion": "yes " * i + "no", "label": i % 2 == 0, "weight": 0.5 + i},
            {"prompt": turns[:3], "completion": turns[3:], "label": True},
            {"messages": turns, "label": False},
            {"instruction": f"{i}!", "output": "done", "label": True},
        ]
    return rows


def write_rows(rows: list[Row], path: Path) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def counts(stats: DataStats) -> dict[str, int]:
    return {name: value for name, value in vars(stats).items() if isinstance(value, int)}


@pytest.mark.parametrize(
    ("rows", "loss", "seq_len", "seed"),
    [
        (mixed_rows(40), "sft", 64, 0),
        (mixed_rows(40), "sft", 64, 12345),
        (mixed_rows(1)[:1], "sft", 256, 1),
        ([{"text": "no weights " * i} for i in range(9)], "sft", 33, 7),
        ([{"text": "one in float32", "weight": 1.00000001}], "sft", 33, 7),
        (preferences(20), "dpo", 128, 2),
        (preferences(5), "simpo", 128, 2),
        (preferences(20), "kto", 128, 2),
        (labelled(20), "kto", 64, 3),
    ],
)
def test_the_same_token_file_as_in_python(
    rows: list[Row], loss: Loss, seq_len: int, seed: int, bundle: Path, tmp_path: Path
) -> None:
    data = write_rows(rows, tmp_path / "rows.jsonl")
    expected = prepare(data, "train", Tokenizer(bundle), seq_len, seed, tmp_path / "python.tokens", loss)
    config = TrainConfig(seq_len=str(seq_len), seed=str(seed), loss=loss)
    dataset = Dataset(str(bundle), str(data))
    assert dataset.write_tokens(str(tmp_path / "device.tokens"), config) == counts(expected)
    assert (tmp_path / "device.tokens").read_bytes() == (tmp_path / "python.tokens").read_bytes()

    added = Dataset(str(bundle), str(tmp_path / "added.jsonl"))
    for row in rows:
        added.add(json.dumps(row))
    assert added.rows == len(rows) == Dataset(str(bundle), str(tmp_path / "added.jsonl")).rows
    added.write_tokens(str(tmp_path / "added.tokens"), config)
    assert (tmp_path / "added.tokens").read_bytes() == (tmp_path / "python.tokens").read_bytes()

    options = ["--seq-len", str(seq_len), "--seed", str(seed), "--loss", loss]
    (done,) = events("tokens", bundle, "--data", data, "--out", tmp_path / "command.tokens", *options)
    assert done == {"event": "done", **counts(expected)}
    assert (tmp_path / "command.tokens").read_bytes() == (tmp_path / "python.tokens").read_bytes()


def test_the_same_pieces_of_long_texts_with_bos(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", bos=True)
    data = write_rows([{"text": " ".join(SENTENCES)}, {"prompt": "1", "completion": "2"}], tmp_path / "rows.jsonl")
    expected = prepare(data, "train", Tokenizer(bundle), 16, 0, tmp_path / "python.tokens", "sft")
    assert expected.sequences > 2
    dataset = Dataset(str(bundle), str(data))
    assert dataset.write_tokens(str(tmp_path / "device.tokens"), TrainConfig(seq_len="16")) == counts(expected)
    assert (tmp_path / "device.tokens").read_bytes() == (tmp_path / "python.tokens").read_bytes()


@pytest.mark.parametrize(
    "row",
    [
        [],
        {},
        {"prompt": "a"},
        {"text": 3},
        {"messages": []},
        {"messages": [3]},
        {"messages": [{"role": "user"}]},
        {"messages": chat(("user", "a"))},
        {"messages": chat(("user", "a"), ("assistant", "b")), "tools": [{"type": "function"}]},
        {"conversations": [{"from": "alien", "value": "a"}]},
        {"messages": chat(("user", "a"), ("assistant", "b"), ("user", "c")), "label": True},
        {"messages": [{"role": "user", "content": ["a"]}]},
        {"text": "a", "weight": -1},
        {"text": "a", "weight": "a very long text that is no weight at all, however long"},
        {"text": "a", "weight": True},
        {"text": "a", "weight": 1e39},
        {"chosen": "a", "rejected": "b"},
        {"prompt": "a", "chosen": "a", "rejected": chat(("assistant", "b"))},
        {"prompt": chat(("user", "a")), "chosen": chat(("user", "a")), "rejected": chat(("assistant", "b"))},
        {"chosen": chat(("user", "a"), ("assistant", "b")), "rejected": chat(("user", "a"), ("assistant", "b"))},
        {"chosen": chat(("user", "a"), ("assistant", "b")), "rejected": chat(("user", "a"), ("user", "b"))},
    ],
)
def test_bad_rows_are_refused_in_the_same_words(row: Any, bundle: Path, tmp_path: Path) -> None:
    good = {"text": "good"}
    path = write_rows([good, row], tmp_path / "rows.jsonl")
    with pytest.raises(UserError) as python:
        prepare(path, "train", Tokenizer(bundle), 256, 0, tmp_path / "tokens")
    with pytest.raises(RuntimeFailure) as device:
        Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig())
    assert str(device.value) == str(python.value)
    assert not (tmp_path / "tokens").exists()

    before = write_rows([good], path).read_bytes()
    dataset = Dataset(str(bundle), str(path))
    with pytest.raises(RuntimeFailure):
        dataset.add(json.dumps(row))
    assert path.read_bytes() == before and dataset.rows == 1


def test_rows_that_do_not_suit_the_others_the_model_or_the_loss(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    dataset = Dataset(str(bundle), str(path))
    with pytest.raises(RuntimeFailure, match="rows.jsonl: is empty"):
        dataset.write_tokens(str(tmp_path / "tokens"), TrainConfig())
    dataset.add(json.dumps({"text": "a"}))
    with pytest.raises(RuntimeFailure, match="this row is a preference, but the rows before it are texts or chats"):
        dataset.add(json.dumps(preferences(1)[0]))
    with pytest.raises(RuntimeFailure, match="rows.jsonl:1: the row is not a preference; loss dpo requires"):
        dataset.write_tokens(str(tmp_path / "tokens"), TrainConfig(loss="dpo"))
    with pytest.raises(RuntimeFailure, match='message 2: "tool_calls" are not used by the model'):
        called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
        dataset.add(json.dumps({"messages": [*chat(("user", "a")), called]}))
    with pytest.raises(RuntimeFailure, match="seed -1: must not be negative"):
        dataset.write_tokens(str(tmp_path / "tokens"), TrainConfig(seed="-1"))
    write_rows([{"prompt": "long " * 50, "completion": "b"}], path)
    with pytest.raises(RuntimeFailure, match="no tokens to train on within seq_len 8"):
        Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig(seq_len="8"))
    write_rows([{"prompt": "a", "completion": "b", "label": False}], path)
    for loss, message in (
        ("sft", 'the row has a "label"; use loss kto'),
        ("orpo", "not a preference; loss orpo .* use loss kto"),
    ):
        with pytest.raises(RuntimeFailure, match=f"rows.jsonl:1: .*{message}"):
            Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig(loss=loss))
    with pytest.raises(RuntimeFailure, match="this row is a text or a chat, but the rows before it are answers with"):
        Dataset(str(bundle), str(path)).add('{"text": "a"}')
    write_rows([{"prompt": "a", "completion": "b", "label": "good"}], path)
    with pytest.raises(RuntimeFailure, match='rows.jsonl:1: the row has no "label"; loss kto requires true or false'):
        Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig(loss="kto"))
    write_rows(preferences(1), path)
    with pytest.raises(RuntimeFailure, match="this row is a text or a chat, but the rows before it are preferences"):
        Dataset(str(bundle), str(path)).add('{"text": "a"}')
    with pytest.raises(RuntimeFailure, match="rows.jsonl:1: the row is a preference"):
        Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig())


def test_a_row_cut_short_is_none(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    one, other = '{"text": "one"}', '{"text": "other"}'
    for end in range(1, len(other)):  # wherever the power failed
        path.write_text(f"{one}\n{other[:end]}")
        dataset = Dataset(str(bundle), str(path))
        assert dataset.rows == 1
        dataset.add(other)
        assert path.read_text().split("\n") == [one, other, ""]
    path.write_text(f"{one}\n\n{other}")  # as an editor may leave it, with no end of the last line
    dataset = Dataset(str(bundle), str(path))
    assert dataset.rows == 2
    dataset.add(one)
    assert [json.loads(line)["text"] for line in path.read_text().splitlines() if line] == ["one", "other", "one"]
    path.write_text(f"{one}\n{other[:9]}\n{one}\n")  # in the middle: no writing of ours
    with pytest.raises(RuntimeFailure, match="rows.jsonl:2: not JSON"):
        Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig())


@pytest.mark.parametrize("end", ['{"text": "oth', "\0\0\0"])
def test_a_row_cut_short_in_a_file_of_others_is_an_error(end: str, bundle: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "rows.jsonl", tmp_path / "tokens"
    path.write_text('{"text": "one two"}\n' + end)
    assert f"{path}:2: not JSON" in failure("tokens", bundle, "--data", path, "--out", out)
    (found,) = events("tokens", bundle, "--data", path, "--out", out, "--on-bad-row", "skip")
    assert (found["rows"], found["bad"]) == (2, 1)


@pytest.mark.parametrize(
    "line", ['{"text": "mine", "score": NaN}', '{"text": "mine" "weight": 2}', '{"text": "mine", "x": 1e400}', "mine"]
)
def test_a_whole_line_that_is_wrong_stays(line: str, bundle: Path, tmp_path: Path) -> None:
    """Nobody's writing was cut short there, so nothing of it is taken away."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "one"}\n' + line)
    dataset = Dataset(str(bundle), str(path))
    assert dataset.rows == 2
    with pytest.raises(RuntimeFailure, match="rows.jsonl:2: not JSON"):
        dataset.write_tokens(str(tmp_path / "tokens"), TrainConfig())
    dataset.add('{"text": "other"}')
    assert path.read_text() == '{"text": "one"}\n' + line + '\n{"text": "other"}\n'


def test_a_row_in_many_lines_becomes_one(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"messages": chat(("user", "a\nb"), ("assistant", "c\r\nd"))}
    Dataset(str(bundle), str(path)).add(json.dumps(row, indent=2))
    assert [json.loads(line) for line in path.read_text().splitlines()] == [row]


def test_bad_rows_are_skipped_if_wanted(bundle: Path, tmp_path: Path) -> None:
    path = write_rows([{"text": "a b c"}, {"txt": "b"}, {"text": "c d e"}, {"text": 3}], tmp_path / "rows.jsonl")
    found = Dataset(str(bundle), str(path)).write_tokens(str(tmp_path / "tokens"), TrainConfig(on_bad_row="skip"))
    assert (found["rows"], found["bad"], found["dropped"]) == (4, 2, 0)


def test_two_that_add_to_one_file(bundle: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.jsonl")
    one, other = Dataset(str(bundle), path), Dataset(str(bundle), path)
    one.add('{"text": "a"}')
    with pytest.raises(RuntimeFailure, match="a preference, but the rows before it are texts or chats"):
        other.add(json.dumps(preferences(1)[0]))
    other.add('{"text": "b"}')
    one.add('{"text": "c"}')
    assert (one.rows, other.rows) == (3, 2)
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda i: Dataset(str(bundle), path).add(json.dumps({"text": f"{i}"})), range(100)):
            pass
    texts = [json.loads(line)["text"] for line in Path(path).read_text().splitlines()]
    assert texts[:3] == ["a", "b", "c"] and sorted(texts[3:], key=int) == [str(i) for i in range(100)]


def test_tokens_never_take_the_place_of_the_rows(bundle: Path, tmp_path: Path) -> None:
    path = write_rows([{"text": "one"}], tmp_path / "rows.jsonl")
    (tmp_path / "link").symlink_to(path)
    for out in (path, tmp_path / "link"):
        assert "is the file with the rows" in failure("tokens", bundle, "--data", path, "--out", out)
    assert path.read_text() == '{"text": "one"}\n'


def test_a_full_disk_loses_nothing(bundle: Path, tmp_path: Path) -> None:
    path = write_rows([{"text": "one"}], tmp_path / "rows.jsonl")
    before = path.read_bytes()
    dataset = Dataset(str(bundle), str(path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(RuntimeFailure, match="cannot save the row .*earlier rows are unchanged"):
            dataset.add(json.dumps({"text": "a longer row"}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and dataset.rows == 1
    dataset.add(json.dumps({"text": "a longer row"}))
    assert len(path.read_text().splitlines()) == 2


def test_files_that_are_none(bundle: Path, tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(RuntimeFailure, match="not a regular file|Is a directory"):
            Dataset(str(bundle), str(path))
    with pytest.raises(RuntimeFailure, match="No such file"):
        Dataset(str(bundle), str(tmp_path / "no" / "rows.jsonl")).add('{"text": "a"}')
    missing = tmp_path / "none.jsonl"
    error = failure("tokens", bundle, "--data", missing, "--out", tmp_path / "tokens")
    assert f"--data {missing}: not found" in error
