"""Where training data is: folders, files and rows in memory become rows as JSON."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.data.row_files import read_text
from mobile_ft.data.rows import DataSource, FileRow, JsonRow, has_split, read_rows
from mobile_ft.errors import UserError


def values(data: DataSource, split: Any = "train") -> list[Any]:
    rows = list(read_rows(data, split))
    assert all(isinstance(row, JsonRow) for row in rows)
    return [json.loads(row.json) for row in rows if isinstance(row, JsonRow)]


ROWS = [{"text": "é\u2028"}, {"prompt": "p", "completion": "c", "weight": 0.5}, {"messages": [{"role": "user"}]}]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS)  # blank lines between
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())  # a byte order mark, and no newline at the end
    assert [row.where for row in read_rows(file, "train")] == [f"{file}:1", f"{file}:3", f"{file}:5"]
    assert values(file) == ROWS


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_array_whatever_its_file_is_called(name: str, indent: int | None, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("\n " + json.dumps(ROWS, indent=indent) + "\n")
    assert values(file) == ROWS
    assert [row.where for row in read_rows(file, "train")] == [f"{file}: row {n}" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, ", ": row 2: not JSON"),
        ("[1 2]", ": row 1: not JSON (after it, a comma or the end"),
        ("[1] 2", ": not JSON (text after the end"),
        ("[", ": row 1: not JSON"),
        ("[]", ": is empty; it must have rows"),
        ("[" * 100_000, ": row 1: not JSON"),
    ],
)
def test_arrays_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(UserError, match=re.escape(f"{file}{message}")):
        list(read_rows(file, "train"))


def test_csv(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    with file.open("w", newline="", encoding="utf-8-sig") as lines:
        writer = csv.writer(lines)
        writer.writerows([["prompt", "completion", "weight"], ["a, b", 'c\n"d"', "2"], ["é", "", ""]])
    assert values(file) == [
        {"prompt": "a, b", "completion": 'c\n"d"', "weight": 2.0},
        {"prompt": "é"},
    ]


def test_empty_cells_and_names_of_csv(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("prompt,completion,tools,label,weight,,\np,c,,,,,\np,,,true,,1,2\n")
    assert values(file) == [{"prompt": "p", "completion": "c"}, {"prompt": "p", "label": True, "": "2"}]


def test_labels_in_csv(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    cells = ["true", "True", "FALSE", "false", "positive", "1"]
    file.write_text("prompt,completion,label\n" + "".join(f"p,c,{cell}\n" for cell in cells))
    assert [row["label"] for row in values(file)] == [True, True, False, False, "positive", "1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1\n", ":2: must have one cell per column (2)"),
        ("a,b\n1,2,3\n", ":2: must have one cell per column"),
        ('a,b\n1,"2', ":1: not CSV"),
        ("a,b,a\n1,2,3\n", ":1: has 2 columns named 'a'; keep one"),
        ("a,weight\n1,x\n", ":2: \"weight\" is 'x'; it must be a number"),
        ("a,b\n", ": is empty; it must have rows"),
    ],
)
def test_csv_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=re.escape(f"{file}{message}")):
        list(read_rows(file, "train"))


def test_parquet_leaves_out_what_the_table_filled(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {"messages": [{"role": "assistant", "tool_calls": [{"arguments": {"a": 1}}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"arguments": {"b": "x"}}]}]},
    ]
    for name in ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / name)
    assert values(tmp_path) == rows * 2
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="bad.parquet: not a readable Parquet file"):
        list(read_rows(tmp_path / "bad.parquet", "train"))


def test_folder_that_datasets_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    train = datasets.Dataset.from_list([{"text": "a", "other": None}, {"text": "b", "other": {"x": 1}}])
    train.save_to_disk(tmp_path / "one")
    assert values(tmp_path / "one") == values(train) == [{"text": "a"}, {"text": "b", "other": {"x": 1}}]
    datasets.DatasetDict({"train": train, "validation": train.select([1])}).save_to_disk(tmp_path / "both")
    assert values(tmp_path / "both", "valid") == [{"text": "b", "other": {"x": 1}}]
    assert has_split(tmp_path / "both", "valid") and not has_split(tmp_path / "one", "valid")


def test_data_sets_of_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(name: str) -> Any:
        asked.append(name)
        if name == "owner/none":
            raise ConnectionError("no\nnetwork")
        return {"train": [{"text": "a"}], "test": [{"text": "b"}]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.chdir(tmp_path)
    assert values("owner/name") == [{"text": "a"}] and values(Path("owner/name"), "valid") == [{"text": "b"}]
    assert not has_split("owner/name", "valid") and set(asked) == {"owner/name"}
    with pytest.raises(
        UserError, match=r"^owner/none: no such file, and loading it as a data set failed \(no network\)"
    ):
        values("owner/none")
    with pytest.raises(UserError, match="^data/train.jsonl: not found"):
        values("data/train.jsonl")


def test_text_file(tmp_path: Path) -> None:
    file = tmp_path / "book.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "Émile\r\n\n end".encode())
    assert list(read_rows(file, "valid")) == [FileRow(str(file), file)]
    assert "".join(read_text(file)) == "Émile\r\n\n end"


def test_text_file_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a piece ends within a character; a bad byte is counted from the start of the file."""
    monkeypatch.setattr("mobile_ft.data.row_files._BLOCK", 5)
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
                    list(read_rows(file, "train"))


def test_splits_of_a_folder(tmp_path: Path) -> None:
    def text_of(split: Any) -> Any:
        (row,) = values(tmp_path, split)
        return row["text"]

    with pytest.raises(UserError, match=re.escape(f"{tmp_path}: the folder has no train.jsonl (or ")):
        list(read_rows(tmp_path, "train"))
    (tmp_path / "train.jsonl").write_text('{"text": "train"}')
    with pytest.raises(
        UserError, match=re.escape(f"{tmp_path}: the folder has no valid.jsonl or validation.jsonl or test.jsonl (or ")
    ):
        list(read_rows(tmp_path, "valid"))
    for name, content in [
        ("test.csv", "text\ntest\n"),
        ("validation.json", '[{"text": "validation"}]'),
        ("valid.jsonl", '{"text": "valid"}'),
    ]:
        (tmp_path / name).write_text(content)
        if name != "valid.jsonl":
            assert text_of("valid") == name.split(".")[0]
    assert text_of("train") == "train"
    with pytest.raises(UserError, match="valid.jsonl: validation.json is also in this folder; use the path of one"):
        text_of("valid")
    (tmp_path / "validation.json").unlink()
    assert text_of("valid") == "valid"
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(UserError, match="train.jsonl: train.json is also in this folder"):
        list(read_rows(tmp_path, "train"))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["00000-of-00003", "00002-of-00003"], "{folder}: train-00001-of-00003.jsonl is missing; all 3 files of train"),
        (["00000-of-00002"], "{folder}: train-00001-of-00002.jsonl is missing"),
        (["00001-of-00002"], "{folder}: train-00000-of-00002.jsonl is missing"),
        (["00000-of-00001", "00000-of-00002"], "train-00000-of-00001.jsonl: train-00000-of-00002.jsonl is also in"),
        (["00000-of-00001", "00001-of-00001"], "train-00000-of-00001.jsonl: train-00001-of-00001.jsonl is also in"),
        (["00000-of-00001", ""], "train.jsonl: train-00000-of-00001.jsonl is also in this folder"),
    ],
)
def test_numbered_files_that_are_not_all_of_one_split(names: list[str], message: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / f"train-{name}.jsonl".replace("-.", ".")).write_text('{"text": "t"}')
    with pytest.raises(UserError, match=message.format(folder=re.escape(str(tmp_path)))):
        list(read_rows(tmp_path, "train"))


def test_numbered_files_of_two_types(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"):
        (tmp_path / name).write_text('{"text": "t"}')
    assert len(values(tmp_path)) == 2
    (tmp_path / "train-00001-of-00002.csv").write_text("text\nt\n")
    with pytest.raises(UserError, match="train-00000-of-00002.jsonl: train-00001-of-00002.csv is also in this folder"):
        values(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", ": is empty; it must have rows, such as one JSON object per line"),
        ("a.jsonl", b"\n \n", ": is empty"),
        ("a.txt", b" \n", ": is empty; it must have the text to train on"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', ":2: byte 11 is not UTF-8; save the file as UTF-8"),
        ("a.txt", b"abc\xff", ": byte 4 is not UTF-8"),
        ("a.xml", b"a,b", ": unknown file type; data must be a folder with train.jsonl, or a .jsonl"),
        ("a.jsonl", None, ": not found; data must be a folder with train.jsonl, or a .jsonl"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_rows(file, "train"))
    assert str(error.value).startswith(f"{file}{message}")


class Dataset:
    """What `datasets.Dataset` offers of what is used: a length and an iterator that yields dicts."""

    column_names = ("messages", "text")

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        columns = dict.fromkeys(key for row in self._rows for key in row)
        return ({key: row.get(key) for key in columns} for row in self._rows)


def test_rows_from_memory() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "t"},
        {"messages": [{"role": "user", "tool_calls": None}], "weight": np.float32(0.25)},
    ]
    for data in (rows, tuple(rows)):
        assert values(data) == values(data, "valid") == rows
    assert values(Dataset(rows)) == [{"text": "t"}, {"messages": [{"role": "user"}], "weight": 0.25}]
    assert [row.where for row in read_rows(rows, "train")] == ["row 1", "row 2"]
    for bad in (object(), float("nan"), b"x"):
        with pytest.raises(UserError, match='^row 1: "day" has a value that JSON cannot represent .*; remove it$'):
            list(read_rows([{"text": "a", "day": bad}], "train"))
    with pytest.raises(UserError, match="^row 1: the row has a value that JSON cannot represent"):
        list(read_rows([object()], "train"))  # type: ignore[list-item]


def test_splits_in_memory() -> None:
    rows = {name: Dataset([{"text": name}]) for name in ("test", "validation", "train")}
    assert list(read_rows(rows, "train")) == [JsonRow('row 1 of "train"', '{"text": "train"}')]
    assert values(rows, "valid") == [{"text": "validation"}]
    del rows["validation"]
    assert values(rows, "valid") == [{"text": "test"}]
    del rows["train"]
    with pytest.raises(UserError, match='^data: this mapping of splits has "test"; it must have "train"$'):
        list(read_rows(rows, "train"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data: is empty; it must have rows, each a dict"),
        ({"train": []}, 'data of "train": is empty'),
        (iter([{"text": "a"}]), "data: must be a list of dicts or a dataset, not a list_iterator"),
        (b"train.jsonl", "data: must be a list of dicts or a dataset, not a bytes"),
        ({"train": {"text": ["a"]}}, 'data of "train": must be a list of dicts or a dataset, not a dict'),
        (3, "data: must be a list of dicts or a dataset, not a int"),
        ({"text": "a"}, 'data: this mapping of splits has "text"; it must have "train"'),
    ],
)
def test_data_that_is_none(data: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}"):
        list(read_rows(data, "train"))


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
    (tmp_path / "valid.csv").write_text("text\nt\n")
    with_validation: list[DataSource] = [tmp_path, {"train": rows, "validation": rows}, {"train": rows, "valid": rows}]
    for data in with_validation:
        assert has_split(data, "valid")
