import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.errors import UserError
from mobile_ft.rows import (
    ChatRow,
    DataSource,
    FileRow,
    PairRow,
    PreferenceRow,
    TextRow,
    has_split,
    read_rows,
    read_text,
)


def test_every_kind_of_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    messages = [{"role": "user", "content": "é"}, {"role": "assistant", "content": "b"}]
    lines = [
        {"messages": [message | {"name": "extra"} for message in messages], "id": 1},
        {"prompt": "p", "completion": "c"},
        {"question": "q", "answer": "a\u2028b"},
        {"text": "t", "source": "extra"},
    ]
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)  # blank lines between
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())  # a byte order mark, and no newline at the end
    assert read_rows(file, "train") == [
        ChatRow(f"{file}:1", messages),
        PairRow(f"{file}:3", "p", "c"),
        PairRow(f"{file}:5", "q", "a\u2028b"),
        TextRow(f"{file}:7", "t"),
    ]


def test_text_file(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "Émile\r\n\n end".encode())
    assert read_rows(file, "valid") == [FileRow(str(file), file)]
    assert "".join(read_text(file)) == "Émile\r\n\n end"


def test_text_file_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a piece ends within a character; a bad byte is counted from the start of the file."""
    monkeypatch.setattr("mobile_ft.rows._BLOCK", 5)
    file = tmp_path / "book.txt"
    text = "é日本🙂\r\n" * 10
    for mark in (b"", b"\xef\xbb\xbf"):
        file.write_bytes(mark + text.encode())
        assert "".join(read_text(file)) == text
        for place in (0, 4, 13, 130):
            good = (text * 2).encode()[:place].decode(errors="ignore").encode()
            for bad in (b"\xff", b"\xf0\x9f"):
                file.write_bytes(mark + good + bad)
                with pytest.raises(UserError, match=re.escape(f"{file}: byte {len(mark + good) + 1} is not UTF-8")):
                    read_rows(file, "train")


def test_splits_of_a_folder(tmp_path: Path) -> None:
    def text_of(split: Any) -> str:
        (row,) = read_rows(tmp_path, split)
        assert isinstance(row, TextRow)
        return row.text

    with pytest.raises(UserError, match=re.escape(f"{tmp_path}: no train.jsonl in")):
        read_rows(tmp_path, "train")
    (tmp_path / "train.jsonl").write_text('{"text": "train"}')
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}: no valid.jsonl or test.jsonl in")):
        read_rows(tmp_path, "valid")
    (tmp_path / "test.jsonl").write_text('{"text": "test"}')
    assert (text_of("train"), text_of("valid")) == ("train", "test")
    (tmp_path / "valid.jsonl").write_text('{"text": "valid"}')
    assert text_of("valid") == "valid"


TURNS = '"messages": [{"role": "user", "content": "a"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not JSON (Expecting ',' delimiter at column 13)"),
        ("[" * 100_000, "JSON that cannot be read"),
        ("[1]", 'an object with "messages", "prompt" and "completion",'),
        ('{"txt": "a", "id": 1}', 'found "txt", "id"; a row needs "messages", "prompt" and "completion", '),
        ("{}", "found nothing; a row needs"),
        ('{"prompt": "a"}', 'found "prompt"; a row needs'),
        ('{"prompt": "a", "answer": "b"}', 'found "prompt", "answer"; a row needs'),
        ('{"text": 3}', '"text" should be a string, this is 3'),
        ('{"text": null, "id": 1}', 'found "id"; a row needs "messages"'),
        ('{"text": "a", "weight": true}', '"weight" should be a finite number of at least 0, this is true'),
        ('{"text": "a", "weight": "2"}', '"weight" should be a finite number of at least 0, this is "2"'),
        ('{"text": "a", "weight": -0.5}', '"weight" should be a finite number of at least 0, this is -0.5'),
        ('{"text": "a", "weight": NaN}', '"weight" should be a finite number of at least 0, this is NaN'),
        ('{"text": "a", "weight": 1e999}', '"weight" should be a finite number of at least 0, this is Infinity'),
        ('{"text": "a", "weight": 1e39}', '"weight" should be a finite number of at least 0, this is 1e+39'),
        ('{"prompt": "a", "completion": ["b"]}', '"completion" should be a string, this is ["b"]'),
        ('{"question": {"q": 1}, "answer": "b"}', '"question" should be a string, this is {"q": 1}'),
        ('{"text": "a\\ud83d"}', '"text" holds \\ud83d, half a surrogate pair'),
        ('{"messages": []}', '"messages" should be a non-empty list'),
        ('{"messages": {"role": "user"}}', '"messages" should be a non-empty list'),
        ('{"messages": ["hi"]}', 'message 1 should be an object with "role" and "content"'),
        (
            "{" + TURNS + ', {"role": "assistant"}]}',
            'message 2 should be an object with "role" and "content"',
        ),
        (
            "{" + TURNS + ', {"role": "assistant", "content": null}]}',
            'message 2: "content" should be a string',
        ),
        ("{" + TURNS + "]}", 'nothing to learn; a message with the role "assistant"'),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', 'message 1 has the role "assistant"'),
    ],
)
def test_rows_that_cannot_be_used(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(f'{{"text": "good"}}\n\n{line}\n{{"text": "good"}}\n')
    with pytest.raises(UserError) as error:
        read_rows(tmp_path, "train")
    assert str(error.value).startswith(f"{file}:3: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", ": empty; it should hold one JSON object a line"),
        ("a.jsonl", b"\n \n", ": empty"),
        ("a.txt", b" \n", ": empty; it should hold the text to train on"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', ":2: byte 11 is not UTF-8; save the file as UTF-8"),
        ("a.txt", b"abc\xff", ": byte 4 is not UTF-8"),
        ("a.csv", b"a,b", ": unknown kind of file; data is a folder with train.jsonl, a .jsonl"),
        ("a.jsonl", None, ": not found; data is a folder with train.jsonl, a .jsonl"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_rows(file, "train")
    assert str(error.value).startswith(f"{file}{message}")


def test_weights(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows: list[dict[str, Any]] = [
        {"text": "t", "weight": 2},
        {"prompt": "p", "completion": "c", "weight": 0.5},
        {"messages": messages, "weight": 0},
        {"text": "t", "weight": None},
        {"text": "t", "weight": np.float32(0.25)},
    ]
    weights = [2, 0.5, 0, 1, 0.25]
    assert [row.weight for row in read_rows(rows, "train")] == weights
    file.write_text("\n".join(json.dumps(row) for row in rows[:4]))
    assert [row.weight for row in read_rows(file, "train")] == weights[:4]


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def preference(*sides: ChatRow | PairRow, weight: float = 1.0) -> PreferenceRow:
    return PreferenceRow("row 1", *sides, weight)


CHAT = [user("a"), assistant("b"), user("c")]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"prompt": "p", "chosen": "c", "rejected": "r", "weight": 2, "messages": None},
            preference(PairRow("row 1", "p", "c"), PairRow("row 1", "p", "r"), weight=2),
        ),
        (
            {"prompt": CHAT, "chosen": [assistant("c")], "rejected": [assistant("r")]},
            preference(
                ChatRow("row 1", [*CHAT, assistant("c")], learned_from=3),
                ChatRow("row 1", [*CHAT, assistant("r")], learned_from=3),
            ),
        ),
        (  # the prompt is what both start with; its text may be there once more
            {"prompt": "c", "chosen": [*CHAT, assistant("c"), user("d")], "rejected": [*CHAT, assistant("r")]},
            preference(
                ChatRow("row 1", [*CHAT, assistant("c"), user("d")], learned_from=3),
                ChatRow("row 1", [*CHAT, assistant("r")], learned_from=3),
            ),
        ),
        (
            {"prompt": "p", "chosen": [assistant("c")], "rejected": [assistant("r")]},
            preference(
                ChatRow("row 1", [user("p"), assistant("c")], learned_from=1),
                ChatRow("row 1", [user("p"), assistant("r")], learned_from=1),
            ),
        ),
    ],
)
def test_preferences(row: dict[str, Any], expected: PreferenceRow) -> None:
    assert read_rows([row], "train") == [expected]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": "c", "rejected": "r"}, '"chosen" and "rejected" that are strings need a "prompt"'),
        ({"prompt": "p", "chosen": "c"}, 'found "prompt", "chosen"; a row needs'),
        ({"prompt": "p", "chosen": 1, "rejected": "r"}, '"chosen" should be a string, this is 1'),
        ({"prompt": CHAT, "chosen": "c", "rejected": "r"}, '"prompt" should be a string, this is [{"role": "user"'),
        ({"prompt": "p", "chosen": [assistant("c")], "rejected": "r"}, '"rejected" should be a non-empty list'),
        ({"prompt": [], "chosen": CHAT, "rejected": CHAT}, '"prompt" should be a non-empty list'),
        ({"chosen": [user("a"), {}], "rejected": CHAT}, 'message 2 of "chosen" should be an object with "role"'),
        (
            {"prompt": CHAT, "chosen": [assistant("c")], "rejected": [*CHAT, assistant("r")]},
            '"rejected" starts with the role "user"; "assistant" should follow what is in "prompt"',
        ),
        (
            {"chosen": [*CHAT, assistant("c")], "rejected": [*CHAT, assistant("c")]},
            '"chosen" and "rejected" are the same',
        ),
        (
            {"chosen": [*CHAT, assistant("c")], "rejected": CHAT},
            'nothing to learn; a message with the role "assistant" is needed after message 3',
        ),
        ({"chosen": [assistant("c")], "rejected": [assistant("r")]}, 'message 1 has the role "assistant"'),
    ],
)
def test_preferences_that_cannot_be_used(row: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        read_rows([{"prompt": "p", "chosen": "c", "rejected": "r"}, row], "train")
    assert str(error.value).startswith(f"row 2: {message}")
    assert "\n" not in str(error.value)


def test_preferences_do_not_mix_with_other_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    preferred, other = '{"prompt": "p", "chosen": "c", "rejected": "r"}\n', '{"text": "t"}\n'
    file.write_text(preferred * 2 + other)
    with pytest.raises(UserError, match=re.escape(f"{file}:3: this row is no preference, and those before it are;")):
        read_rows(file, "train")
    file.write_text(other * 3 + preferred)
    with pytest.raises(UserError, match=re.escape(f"{file}:4: this row is a preference, and those before it are not;")):
        read_rows(file, "train")


class Dataset:
    """What `datasets.Dataset` offers of what is used: a length and an iterator that yields dicts."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = dict.fromkeys(key for row in self._rows for key in row)
        return ({key: row.get(key) for key in columns} for row in self._rows)


def test_rows_from_memory() -> None:
    messages = [user("a"), assistant("b")]
    rows = [{"text": "t"}, {"messages": messages}, {"messages": np.array(messages, object), "text": np.array(None)}]
    expected = [TextRow("row 1", "t"), ChatRow("row 2", messages), ChatRow("row 3", messages)]
    for data in (rows, tuple(rows), Dataset(rows)):
        assert read_rows(data, "train") == read_rows(data, "valid") == expected
    with pytest.raises(UserError, match='^row 2: "text" should be a string, this is 3'):
        read_rows(Dataset([{"text": "t"}, {"text": 3}]), "train")
    with pytest.raises(UserError, match='^row 1: found "txt"; a row needs'):
        read_rows([{"txt": object(), "text": None}], "train")
    with pytest.raises(UserError, match=r"^row 1: \"text\" should be a string, this is \"<object"):
        read_rows([{"text": object()}], "train")


def test_splits_in_memory() -> None:
    rows = {name: Dataset([{"text": name}]) for name in ("test", "validation", "train")}
    assert read_rows(rows, "train") == [TextRow('row 1 of "train"', "train")]
    assert read_rows(rows, "valid") == [TextRow('row 1 of "validation"', "validation")]
    del rows["validation"]
    assert read_rows(rows, "valid") == [TextRow('row 1 of "test"', "test")]
    del rows["train"]
    with pytest.raises(UserError, match='^data: found "test" in this mapping of splits; it should have "train"$'):
        read_rows(rows, "train")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data: no rows; each should be a dict with"),
        ({"train": []}, 'data of "train": no rows'),
        (["a"], "row 1: an object with .* is wanted, this is a str"),
        (iter([{"text": "a"}]), "data: rows are wanted, .* this is a list_iterator"),
        (b"train.jsonl", "data: rows are wanted, .* this is a bytes"),
        ({"train": {"text": ["a"]}}, 'data of "train": rows are wanted, .* this is a dict'),
        (3, "data: rows are wanted, .* this is a int"),
        ({"text": "a"}, 'data: found "text" in this mapping of splits; it should have "train"'),
    ],
)
def test_data_that_is_none(data: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        read_rows(data, "train")


def test_has_split(tmp_path: Path) -> None:
    rows = [{"text": "t"}]
    only_training: list[DataSource] = [
        tmp_path,
        str(tmp_path / "train.jsonl"),
        rows,
        {"train": rows, "test": rows},
    ]
    (tmp_path / "train.jsonl").write_text('{"text": "t"}')
    (tmp_path / "test.jsonl").write_text('{"text": "t"}')  # for `eval`, and not to choose the best adapter by
    for data in only_training:
        assert (has_split(data, "train"), has_split(data, "valid")) == (True, False)
    (tmp_path / "valid.jsonl").write_text('{"text": "t"}')
    with_validation: list[DataSource] = [tmp_path, {"train": rows, "validation": rows}, {"train": rows, "valid": rows}]
    for data in with_validation:
        assert (has_split(data, "train"), has_split(data, "valid")) == (True, True)
    assert not has_split({"validation": rows}, "train")
