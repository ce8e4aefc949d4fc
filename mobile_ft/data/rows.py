"""Reads training data from a folder, a file, memory or the hub as rows of JSON text.

The runtime (runtime/data) interprets the rows, in the same way on a desktop and on a device.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from mobile_ft.data.row_files import READERS, json_text, read_text, without_nulls
from mobile_ft.errors import UserError

Split = Literal["train", "valid"]


class RowsInMemory(Protocol):
    """A sequence of dicts, such as a list or a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


# A path or a data set's name, rows, or a mapping of splits to rows, such as a `datasets.DatasetDict`.
DataSource = str | os.PathLike[str] | RowsInMemory | Mapping[str, RowsInMemory]

_WANTED_PATH = "data must be a folder with train.jsonl, or a .jsonl, .json, .csv, .parquet or .txt file"

_NAMES = {"train": ["train"], "valid": ["valid", "validation", "test"]}  # names of a split, in order of preference
_FIVE_DIGITS = "[0-9]" * 5
_SAVED_DATASET = ("dataset_dict.json", "dataset_info.json")  # files of a folder that `datasets` saved


@dataclass(frozen=True)
class JsonRow:
    """A row as one JSON object, in any of the forms of docs/reference/data.md."""

    where: str  # "file:line" or "row 3", for error messages
    json: str


@dataclass(frozen=True)
class FileRow:
    """A plain text file, read by `read_text`. It has no end token, and all its tokens are learned."""

    where: str
    file: Path


@dataclass(frozen=True)
class BadRow:
    """A row that could not be read."""

    where: str
    error: UserError


Row = JsonRow | FileRow


def read_rows(data: DataSource, split: Split) -> Iterator[Row]:
    """Reads the rows of one split of `data`, at least one.

    A folder has files named `train` and `valid` (or `validation` or `test`) with a suffix, or several files per split,
    such as `train-00000-of-00002.parquet`. A mapping has these names as keys. A single file, or rows in memory, are
    read for every split. Rows are counted from 1. Raises UserError, with the file, line or row, if it is missing or
    malformed.
    """
    for row in read_rows_and_errors(data, split):
        if isinstance(row, BadRow):
            raise row.error
        yield row


def read_rows_and_errors(data: DataSource, split: Split) -> Iterator[Row | BadRow]:
    """The same, but yields the error of a malformed row if others may follow it."""
    if isinstance(data, str | os.PathLike):
        yield from _path_rows(Path(data), split)
    elif isinstance(data, Mapping):
        key = _split_key(data, split)
        yield from _memory_rows(data[key], f' of "{key}"')
    else:
        yield from _memory_rows(data, "")


def has_split(data: DataSource, split: Split) -> bool:
    """Whether `data` has this split for training. A split named "test", or rows without splits, do not count as
    "valid"."""
    names = [name for name in _NAMES[split] if name != "test"]
    if isinstance(data, str | os.PathLike):
        folder = Path(data)
        if folder.is_dir() and not _is_saved_dataset(folder):
            return any(_files_named(folder, name) for name in names)
        if not folder.exists() or folder.is_dir():
            return any(name in names for name in _dataset_splits(data))
    elif isinstance(data, Mapping):
        return any(name in data for name in names)
    return split == "train"


def split_file(path: Path, split: Split) -> Path:
    """Returns the file of a split in a folder, or `path` if it is a file. Raises UserError if there is none."""
    files = split_files(path, split)
    if len(files) > 1:
        raise UserError(f"{path}: {split} has {len(files)} files; use a folder with one file, or the path of one")
    return files[0]


def split_files(path: Path, split: Split) -> list[Path]:
    """Returns the files of a split. Raises UserError if there is none."""
    if path.is_dir():
        rivals = [files[0] for name in _NAMES[split] if name != "test" and (files := _files_named(path, name))]
        if len(rivals) > 1:
            raise _rivals(*rivals)
        for name in _NAMES[split]:
            if files := _files_named(path, name):
                return files
        wanted = " or ".join(f"{name}.jsonl" for name in _NAMES[split])
        raise UserError(f"{path}: the folder has no {wanted} (or .json, .csv, .parquet or .txt)")
    if not path.is_file():
        raise UserError(f"{path}: not found; {_WANTED_PATH}")
    return [path]


def _files_named(folder: Path, name: str) -> list[Path]:
    """Returns NAME.jsonl (or another suffix), or the numbered parts of a split. Raises UserError if it is ambiguous, or
    if a part is missing."""
    whole = [folder / f"{name}{end}" for end in (*READERS, ".txt") if (folder / f"{name}{end}").is_file()]
    parts = sorted(folder.glob(f"{name}-{_FIVE_DIGITS}-of-{_FIVE_DIGITS}.*"))
    if len(whole + parts[:1]) > 1:
        raise _rivals(*(whole + parts)[:2])
    if not parts:
        return whole
    of_count = parts[0].name.removeprefix(f"{name}-")[len("00000") :]  # "-of-00002.parquet"
    count = int(of_count[len("-of-") :][: len("00002")])
    wanted = [folder / f"{name}-{number:05}{of_count}" for number in range(count)]
    if missing := [part.name for part in wanted if part not in parts]:
        raise UserError(f"{folder}: {missing[0]} is missing; all {count} files of {name} must be in this folder")
    if others := [part for part in parts if part not in wanted]:
        raise _rivals(parts[0], others[0])
    return parts


def _rivals(one: Path, other: Path) -> UserError:
    return UserError(f"{one}: {other.name} is also in this folder; use the path of one of them")


def _path_rows(path: Path, split: Split) -> Iterator[Row | BadRow]:
    if (path.is_dir() and _is_saved_dataset(path)) or (not path.exists() and is_hub_name(str(path))):
        splits = _datasets(str(path))
        key = _split_key(splits, split)
        yield from _memory_rows(splits[key], f' of "{key}"')
        return
    for file in split_files(path, split):
        if file.suffix == ".txt":
            yield _text_file(file)
            continue
        if file.suffix not in READERS:
            raise UserError(f"{file}: unknown file type; {_WANTED_PATH}")
        empty = True
        for where, text in READERS[file.suffix](file):
            empty = False
            yield JsonRow(where, text) if isinstance(text, str) else BadRow(where, text)
        if empty:
            raise UserError(f"{file}: is empty; it must have rows, such as one JSON object per line")


def _text_file(file: Path) -> FileRow:
    empty = True
    for piece in read_text(file):  # reads it completely, to find errors now
        empty = empty and not piece.strip()
    if empty:
        raise UserError(f"{file}: is empty; it must have the text to train on")
    return FileRow(str(file), file)


def _split_key(data: Mapping[str, Any], split: Split) -> str:
    for name in _NAMES[split]:
        if name in data:
            return name
    wanted = " or ".join(f'"{name}"' for name in _NAMES[split])
    found = ", ".join(f'"{key}"' for key in data) or "nothing"
    raise UserError(f"data: this mapping of splits has {found}; it must have {wanted}")


def _memory_rows(data: RowsInMemory, of_split: str) -> Iterator[JsonRow | BadRow]:
    if isinstance(data, bytes | Mapping) or not hasattr(data, "__len__") or not hasattr(data, "__iter__"):
        raise UserError(f"data{of_split}: must be a list of dicts or a dataset, not a {type(data).__name__}")
    if not len(data):
        raise UserError(f"data{of_split}: is empty; it must have rows, each a dict")
    is_table = hasattr(data, "column_names")
    for number, row in enumerate(data, start=1):
        where = f"row {number}{of_split}"
        try:
            text = json_text(without_nulls(row) if is_table else row, where)
        except UserError as error:
            yield BadRow(where, error)
        else:
            yield JsonRow(where, text)


def _is_saved_dataset(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _SAVED_DATASET)


def is_hub_name(name: str) -> bool:
    """Whether this can be a data set's name on the hub, OWNER/NAME."""
    parts = name.split("/")
    return len(parts) == 2 and all(parts) and Path(name).suffix not in (*READERS, ".txt") and "\\" not in name


def _dataset_splits(data: str | os.PathLike[str]) -> list[str]:
    path = Path(data)
    return list(_datasets(str(path))) if path.exists() or is_hub_name(str(path)) else []


def _datasets(name: str) -> Mapping[str, RowsInMemory]:
    """Loads a folder that `datasets` saved, or a data set from the hub, by split."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(f"{name}: no such file; for a data set on the hub, run `pip install datasets`") from error
    try:
        found = datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name)
    except Exception as error:  # from the network, the hub or the files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{name}: no such file, and loading it as a data set failed ({reason})") from error
    return found if isinstance(found, Mapping) else {"train": found}
