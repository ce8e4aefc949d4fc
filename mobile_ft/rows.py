"""Reads training data: a folder, a `.jsonl` or a `.txt` becomes a list of checked rows."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mobile_ft.errors import UserError
from mobile_ft.tokenizer import Message

_WANTED = '"messages", "prompt" and "completion", "question" and "answer", or "text"'

_WANTED_LINE = "a row is one JSON object on one line"
_WANTED_PATH = "data is a folder with train.jsonl, a .jsonl file or a .txt file"


@dataclass(frozen=True)
class ChatRow:
    """A chat with at least one assistant turn; the loss is on assistant turns."""

    where: str  # "file:line", for error messages
    messages: list[Message]


@dataclass(frozen=True)
class PairRow:
    """A prompt and what should follow; the loss is on the completion."""

    where: str
    prompt: str
    completion: str


@dataclass(frozen=True)
class TextRow:
    """Plain text; the loss is everywhere."""

    where: str
    text: str
    ends: bool  # whether EOS follows the text; a .txt just stops


Row = ChatRow | PairRow | TextRow


def read_rows(path: Path, split: Literal["train", "valid"]) -> list[Row]:
    """The rows of one split of `path`.

    `path` is a folder with `train.jsonl` and `valid.jsonl` (or `test.jsonl`), or one `.jsonl` or `.txt` file,
    which is read whatever the split. Raises UserError naming the file and line that is missing or malformed.
    """
    file = _split_file(path, split) if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file}: not found; {_WANTED_PATH}")
    if file.suffix == ".jsonl":
        return _read_jsonl(file)
    if file.suffix == ".txt":
        return _read_text(file)
    raise UserError(f"{file}: unknown kind of file; {_WANTED_PATH}")


def _split_file(folder: Path, split: Literal["train", "valid"]) -> Path:
    names = {"train": ["train.jsonl"], "valid": ["valid.jsonl", "test.jsonl"]}[split]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: no {' or '.join(names)} in this folder")


def _read_text(file: Path) -> list[Row]:
    text = _decode(file.read_bytes(), str(file))
    if not text.strip():
        raise UserError(f"{file}: empty; it should hold the text to train on")
    return [TextRow(str(file), text, ends=False)]


def _read_jsonl(file: Path) -> list[Row]:
    rows: list[Row] = []
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            text = _decode(line, where).strip()
            if text:
                rows.append(_parse_row(text, where))
    if not rows:
        raise UserError(f"{file}: empty; it should hold one JSON object a line with {_WANTED}")
    return rows


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark first
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error


def _parse_row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at column {error.colno}"
        raise UserError(f"{where}: not JSON ({reason}); {_WANTED_LINE}") from error
    except (ValueError, RecursionError) as error:  # a number too long, brackets too deep
        raise UserError(f"{where}: JSON that cannot be read ({error}); {_WANTED_LINE}") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: a JSON object with {_WANTED} is wanted, this is a {type(row).__name__}")
    if "messages" in row:
        return ChatRow(where, _check_messages(row["messages"], where))
    for prompt, completion in (("prompt", "completion"), ("question", "answer")):
        if prompt in row and completion in row:
            return PairRow(
                where,
                _check_string(row[prompt], f'{where}: "{prompt}"'),
                _check_string(row[completion], f'{where}: "{completion}"'),
            )
    if "text" in row:
        return TextRow(where, _check_string(row["text"], f'{where}: "text"'), ends=True)
    found = ", ".join(json.dumps(key) for key in row) or "nothing"
    raise UserError(f"{where}: found {found}; a row needs {_WANTED}")


def _check_messages(messages: Any, where: str) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise UserError(f'{where}: "messages" should be a non-empty list of {{"role", "content"}} objects')
    checked: list[Message] = []
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or "role" not in message or "content" not in message:
            raise UserError(f'{where}: message {number} should be an object with "role" and "content"')
        what = f"{where}: message {number}"
        role = _check_string(message["role"], f'{what}: "role"')
        checked.append({"role": role, "content": _check_string(message["content"], f'{what}: "content"')})
    roles = [message["role"] for message in checked]
    if "assistant" not in roles:
        raise UserError(f'{where}: nothing to learn; a message with the role "assistant" is needed')
    if roles[0] == "assistant":
        raise UserError(f'{where}: message 1 has the role "assistant"; "user" or "system" should come first')
    return checked


def _check_string(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{what} should be a string, this is {_shorten(json.dumps(value))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(value[error.start]):04x}"
        raise UserError(f"{what} holds {half}, half a surrogate pair; both halves are needed") from error
    return value


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
