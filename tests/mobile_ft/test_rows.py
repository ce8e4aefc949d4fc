import json
import re
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.errors import UserError
from mobile_ft.rows import ChatRow, PairRow, TextRow, read_rows


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
        TextRow(f"{file}:7", "t", ends=True),
    ]


def test_text_file(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_bytes("Émile\r\n\n end".encode())
    assert read_rows(file, "valid") == [TextRow(str(file), "Émile\r\n\n end", ends=False)]


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
        ("[1]", 'a JSON object with "messages", "prompt" and "completion",'),
        ('{"txt": "a", "id": 1}', 'found "txt", "id"; a row needs "messages", "prompt" and "completion", '),
        ("{}", "found nothing; a row needs"),
        ('{"prompt": "a"}', 'found "prompt"; a row needs'),
        ('{"prompt": "a", "answer": "b"}', 'found "prompt", "answer"; a row needs'),
        ('{"text": 3}', '"text" should be a string, this is 3'),
        ('{"text": null}', '"text" should be a string, this is null'),
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
