"""Reads training data: a folder, a file or rows in memory become a list of checked rows."""

import codecs
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from mobile_ft.chat_template import Message
from mobile_ft.errors import UserError
from mobile_ft.json_text import parse_json

Split = Literal["train", "valid"]


class RowsInMemory(Protocol):
    """Rows as dicts: a list of them, say, or a `datasets.Dataset`."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Mapping[str, Any]]: ...


# A path, rows, or rows by split, as a `datasets.DatasetDict` has them.
DataSource = str | os.PathLike[str] | RowsInMemory | Mapping[str, RowsInMemory]

_WANTED = '"messages", "prompt" and "completion", "question" and "answer", "text", or "prompt", "chosen" and "rejected"'
_WANTED_LINE = "a row is one JSON object on one line"
_WANTED_PATH = "data is a folder with train.jsonl, a .jsonl file or a .txt file"

_FILES = {"train": ["train.jsonl"], "valid": ["valid.jsonl", "test.jsonl"]}
_KEYS = {"train": ["train"], "valid": ["validation", "valid", "test"]}

_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class ChatRow:
    """A chat; the loss is on the assistant's turns, at least one, from message `learned_from` on."""

    where: str  # "file:line" or "row 3", for error messages
    messages: list[Message]
    learned_from: int = 0
    weight: float = 1.0  # of the row's loss, 0 or more


@dataclass(frozen=True)
class PairRow:
    """A prompt and what should follow; the loss is on the completion."""

    where: str
    prompt: str
    completion: str
    weight: float = 1.0


@dataclass(frozen=True)
class TextRow:
    """Plain text, with EOS behind it; the loss is everywhere."""

    where: str
    text: str
    weight: float = 1.0


@dataclass(frozen=True)
class FileRow:
    """A file of plain text, which `read_text` reads and which just stops; the loss is everywhere."""

    where: str
    file: Path
    weight: float = 1.0


@dataclass(frozen=True)
class PreferenceRow:
    """Two ways to go on after the same prompt, and the first should become the likelier one."""

    where: str
    chosen: ChatRow | PairRow
    rejected: ChatRow | PairRow
    weight: float = 1.0


Row = ChatRow | PairRow | TextRow | FileRow | PreferenceRow


def read_rows(data: DataSource, split: Split) -> list[Row]:
    """The rows of one split of `data`; either all or none are preferences.

    A folder has `train.jsonl` and `valid.jsonl` (or `test.jsonl`); a mapping has "train" and "validation" (or "valid"
    or "test"). One `.jsonl` or `.txt` file, or plain rows, are read whatever the split. Rows are counted from 1.
    Raises UserError naming the file and line, or the row, that is missing or malformed.
    """
    if isinstance(data, str | os.PathLike):
        rows = _read_path(Path(data), split)
    elif isinstance(data, Mapping):
        rows = _read_mapping(data, split)
    else:
        rows = _read_memory(data, "")
    preferences = [isinstance(row, PreferenceRow) for row in rows]
    if any(preferences) and not all(preferences):
        odd = rows[preferences.index(not preferences[0])]
        what = (
            "no preference, and those before it are" if preferences[0] else "a preference, and those before it are not"
        )
        raise UserError(f"{odd.where}: this row is {what}; data is all preferences or has none")
    return rows


def has_split(data: DataSource, split: Split) -> bool:
    """Whether `data` has this split for a run of training; neither data for testing nor rows alone are "valid" ones."""
    if isinstance(data, str | os.PathLike):
        if Path(data).is_dir():
            return (Path(data) / f"{split}.jsonl").is_file()
    elif isinstance(data, Mapping):
        return any(key in data for key in _KEYS[split] if key != "test")
    return split == "train"


def read_text(file: Path) -> Iterator[str]:
    """The text of a file piece by piece, line ends as they are. Raises UserError at bytes that are not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with file.open("rb") as blocks:
        if blocks.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:  # some editors put it first
            read = len(codecs.BOM_UTF8)
        blocks.seek(read)
        while True:
            block = blocks.read(_BLOCK)
            held = len(decoder.getstate()[0])  # of a character that the last block ended within
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                byte = read - held + error.start + 1
                raise UserError(f"{file}: byte {byte} is not UTF-8; save the file as UTF-8") from error
            if not block:
                return
            read += len(block)


def _read_path(path: Path, split: Split) -> list[Row]:
    file = split_file(path, split)
    if file.suffix == ".jsonl":
        return _read_jsonl(file)
    if file.suffix == ".txt":
        return _read_text_file(file)
    raise UserError(f"{file}: unknown kind of file; {_WANTED_PATH}")


def split_file(path: Path, split: Split) -> Path:
    """The file that a split is read from: that of a folder, or `path` itself. Raises UserError where there is none."""
    if path.is_dir():
        names = _FILES[split]
        for name in names:
            if (path / name).is_file():
                return path / name
        raise UserError(f"{path}: no {' or '.join(names)} in this folder")
    if not path.is_file():
        raise UserError(f"{path}: not found; {_WANTED_PATH}")
    return path


def _read_text_file(file: Path) -> list[Row]:
    empty = True
    for piece in read_text(file):  # to the end, to find what is wrong with it now
        empty = empty and not piece.strip()
    if empty:
        raise UserError(f"{file}: empty; it should hold the text to train on")
    return [FileRow(str(file), file)]


def _read_mapping(data: Mapping[str, RowsInMemory], split: Split) -> list[Row]:
    for key in _KEYS[split]:
        if key in data:
            return _read_memory(data[key], f' of "{key}"')
    wanted = " or ".join(f'"{key}"' for key in _KEYS[split])
    found = ", ".join(_json(key) for key in data) or "nothing"
    raise UserError(f"data: found {found} in this mapping of splits; it should have {wanted}")


def _read_memory(data: RowsInMemory, of_split: str) -> list[Row]:
    if isinstance(data, bytes | Mapping) or not hasattr(data, "__len__") or not hasattr(data, "__iter__"):
        raise UserError(
            f"data{of_split}: rows are wanted, a list of dicts or a dataset; this is a {type(data).__name__}"
        )
    rows = [_parse_row(row, f"row {number}{of_split}") for number, row in enumerate(data, start=1)]
    if not rows:
        raise UserError(f"data{of_split}: no rows; each should be a dict with {_WANTED}")
    return rows


def _read_jsonl(file: Path) -> list[Row]:
    rows: list[Row] = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            text = _decode(line, where).strip()
            if text:
                rows.append(_parse_row(_parse_json(text, where), where))
    if not rows:
        raise UserError(f"{file}: empty; it should hold one JSON object a line with {_WANTED}")
    return rows


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error


def _parse_json(line: str, where: str) -> Any:
    try:
        return parse_json(line)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
        raise UserError(f"{where}: not JSON ({reason}); {_WANTED_LINE}") from error
    except ValueError as error:  # a number too long, brackets too deep
        raise UserError(f"{where}: JSON that cannot be read ({error}); {_WANTED_LINE}") from error


def _parse_row(row: Any, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: an object with {_WANTED} is wanted, this is a {type(row).__name__}")
    # Datasets have all columns in every row, None where a row had nothing, and numpy's values if asked for.
    row = {key: _plain(value) for key, value in row.items()}
    row = {key: value for key, value in row.items() if value is not None}
    weight = _check_weight(row.get("weight", 1), where)
    if "chosen" in row and "rejected" in row:
        return PreferenceRow(where, *_parse_preference(row, where), weight)
    if "messages" in row:
        messages = _check_messages(row["messages"], "messages", where)
        _check_turns(messages, 0, where)
        return ChatRow(where, messages, weight=weight)
    for prompt, completion in (("prompt", "completion"), ("question", "answer")):
        if prompt in row and completion in row:
            return PairRow(
                where,
                _check_string(row[prompt], f'{where}: "{prompt}"'),
                _check_string(row[completion], f'{where}: "{completion}"'),
                weight,
            )
    if "text" in row:
        return TextRow(where, _check_string(row["text"], f'{where}: "text"'), weight)
    found = ", ".join(_json(key) for key in row) or "nothing"
    raise UserError(f"{where}: found {found}; a row needs {_WANTED}")


def _parse_preference(row: dict[str, Any], where: str) -> tuple[ChatRow | PairRow, ChatRow | PairRow]:
    """The chosen and the rejected side; they are strings or messages, as TRL has them."""
    if not isinstance(row["chosen"], list) and not isinstance(row["rejected"], list):
        if "prompt" not in row:
            raise UserError(f'{where}: "chosen" and "rejected" that are strings need a "prompt"')
        text = {key: _check_string(row[key], f'{where}: "{key}"') for key in ("prompt", "chosen", "rejected")}
        return PairRow(where, text["prompt"], text["chosen"]), PairRow(where, text["prompt"], text["rejected"])

    answers = [_check_messages(row[key], key, where) for key in ("chosen", "rejected")]
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        before = _check_messages(prompt, "prompt", where)
        for key, answer in zip(("chosen", "rejected"), answers, strict=True):
            if answer[0]["role"] != "assistant":
                raise UserError(
                    f'{where}: "{key}" starts with the role {_json(answer[0]["role"])}; "assistant" should follow '
                    'what is in "prompt"'
                )
        chats = [before + answer for answer in answers]
    else:  # what both start with; datasets then may have the question once more as a string, which TRL ignores too
        chats = answers
        before = _common_start(*answers)
        if not before and prompt is not None:
            before = [{"role": "user", "content": _check_string(prompt, f'{where}: "prompt"')}]
            chats = [before + answer for answer in answers]
    if chats[0] == chats[1]:
        raise UserError(f'{where}: "chosen" and "rejected" are the same; nothing to prefer')
    for chat in chats:
        _check_turns(chat, len(before), where)
    chosen_chat, rejected_chat = (ChatRow(where, chat, len(before)) for chat in chats)
    return chosen_chat, rejected_chat


def _common_start(one: list[Message], other: list[Message]) -> list[Message]:
    same = [a == b for a, b in zip(one, other, strict=False)]
    return one[: same.index(False) if False in same else len(same)]


def _check_messages(messages: Any, key: str, where: str) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise UserError(f'{where}: "{key}" should be a non-empty list of {{"role", "content"}} objects')
    checked: list[Message] = []
    for number, message in enumerate(messages, start=1):
        what = f"{where}: message {number}" + ("" if key == "messages" else f' of "{key}"')
        if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
            raise UserError(f'{what} should be an object with "role" and "content"')
        role = _check_string(message["role"], f'{what}: "role"')
        checked.append({"role": role, "content": _check_string(message["content"], f'{what}: "content"')})
    return checked


def _check_turns(messages: list[Message], learned_from: int, where: str) -> None:
    roles = [message["role"] for message in messages]
    if "assistant" not in roles[learned_from:]:
        after = f" after message {learned_from}" if learned_from else ""
        raise UserError(f'{where}: nothing to learn; a message with the role "assistant" is needed{after}')
    if roles[0] == "assistant":
        raise UserError(f'{where}: message 1 has the role "assistant"; "user" or "system" should come first')


def _check_weight(value: Any, where: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= float(np.finfo(np.float32).max):  # what the token file can hold
        raise UserError(f'{where}: "weight" should be a finite number of at least 0, this is {_shorten(_json(value))}')
    return float(value)


def _check_string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{what} should be a string, this is {_shorten(_json(value))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(value[error.start]):04x}"
        raise UserError(f"{what} holds {half}, half a surrogate pair; both halves are needed") from error
    return value


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _json(value: Any) -> str:
    """For messages: rows in memory may hold anything."""
    return json.dumps(value, default=repr, skipkeys=True)


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
