"""Reads JSON lines, a JSON array, CSV or Parquet as rows of JSON text."""

import codecs
import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError

# A row's place, for errors, and its JSON object, or an error if it has none. Other rows may follow an error.
PlacedJson = tuple[str, str | UserError]

_MOST_CELL = 1 << 26  # characters of a CSV cell
_BLOCK = 1 << 20  # bytes
_BLANKS = " \t\r\n"


def json_text(row: Any, where: str) -> str:
    """Returns a row in memory as JSON. Converts numpy values. Raises UserError for a value that JSON cannot
    represent."""
    try:
        return json.dumps(row, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{where}: {_unfit(row)} has a value that JSON cannot represent ({error}); remove it"
        ) from error


def _unfit(row: Any) -> str:
    """The first column that JSON cannot represent, for errors."""
    for key, value in row.items() if isinstance(row, Mapping) else ():
        try:
            json.dumps({key: value}, default=_plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return f'"{key}"'
    return "the row"


def without_nulls(value: Any) -> Any:
    """Removes keys with null, which tables add because all rows have the same columns."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def json_rows(file: Path) -> Iterator[PlacedJson]:
    """Reads JSON lines or one JSON array, whatever the file's suffix. Lines and items are counted from 1."""
    first = True
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}:{number}"
            text = _or_error(decoded, line, where)
            text = text if isinstance(text, UserError) else text.strip()
            if first and isinstance(text, str) and text.startswith("["):
                yield from _array_rows(file)
                return
            if text:
                first = False
                yield where, text


def csv_rows(file: Path) -> Iterator[PlacedJson]:
    """Reads a CSV file. Its first line names the columns. All cells are text, except "weight" and a "label" of true
    or false."""
    csv.field_size_limit(_MOST_CELL)
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            names = [name for name in reader.fieldnames or [] if name]
            for name in names:
                if names.count(name) > 1:
                    raise UserError(f"{file}:1: has {names.count(name)} columns named {name!r}; keep one")
            for row in reader:
                where = f"{file}:{reader.line_num}"
                yield where, _or_error(_csv_json, row, where)
        except csv.Error as error:
            raise UserError(f"{file}:{reader.line_num}: not CSV ({error})") from error


def parquet_rows(file: Path) -> Iterator[PlacedJson]:
    """Reads a Parquet file. Raises UserError if pyarrow, an optional dependency, is not installed."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UserError(f"{file}: Parquet requires pyarrow; run `pip install mobile-ft[parquet]`") from error
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1024):
                for row in batch.to_pylist():
                    number += 1
                    where = f"{file}: row {number}"
                    yield where, _or_error(json_text, without_nulls(row), where)
    except (ArrowException, OSError, UnicodeDecodeError) as error:  # UnicodeDecodeError: a column's name
        raise UserError(f"{file}: not a readable Parquet file ({error})") from error


# Readers by suffix. Text files are not rows of JSON.
READERS: dict[str, Callable[[Path], Iterator[PlacedJson]]] = {
    ".jsonl": json_rows,
    ".json": json_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}


def read_text(file: Path) -> Iterator[str]:
    """Reads a text file piece by piece, without changing line ends. Raises UserError for bytes that are not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    with file.open("rb") as blocks:
        if blocks.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:  # some editors write a byte order mark
            read = len(codecs.BOM_UTF8)
        blocks.seek(read)
        while True:
            block = blocks.read(_BLOCK)
            held = len(decoder.getstate()[0])  # bytes of a character that continues in the next block
            try:
                yield decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                byte = read - held + error.start + 1
                raise UserError(f"{file}: byte {byte} is not UTF-8; save the file as UTF-8") from error
            if not block:
                return
            read += len(block)


def decoded(data: bytes, where: str) -> str:
    """Decodes UTF-8. Raises UserError with the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start + 1} is not UTF-8; save the file as UTF-8") from error


def _or_error(read: Callable[..., str], *given: Any) -> str | UserError:
    """Returns the error of a row instead of raising it, because the rows after it may be wanted."""
    try:
        return read(*given)
    except UserError as error:
        return error


def _array_rows(file: Path) -> Iterator[PlacedJson]:
    """Reads a JSON array item by item, because all items at once would need many times the file's size."""
    text = decoded(file.read_bytes(), str(file)).strip()
    decoder, at, number = json.JSONDecoder(), 1, 0
    while True:
        at = _past_blanks(text, at)
        if number == 0 and text[at : at + 1] == "]":
            break
        number += 1
        where = f"{file}: row {number}"
        try:
            end = decoder.raw_decode(text, at)[1]
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON ({error})") from error
        yield where, text[at:end]
        at = _past_blanks(text, end)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise UserError(f"{where}: not JSON (after it, a comma or the end of the array is missing)")
        at += 1
    if _past_blanks(text, at + 1) < len(text):
        raise UserError(f"{file}: not JSON (text after the end of the array)")


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _csv_json(row: dict[str, str], where: str) -> str:
    cells = [*row, *row.values()]
    if None in cells:
        raise UserError(f"{where}: must have one cell per column ({len(row) - (None in row)})")
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(cells)):  # bytes that are not UTF-8
        raise UserError(f"{where}: is not UTF-8; save the file as UTF-8")
    return json_text(_typed(row, where), where)


def _typed(row: dict[str, str], where: str) -> dict[str, Any]:
    """Removes empty cells, which are missing values. Converts the weight to a number, and a label of true or false to a
    bool."""
    cells: dict[str, Any] = {key: cell for key, cell in row.items() if cell}
    if "weight" in cells:
        try:
            cells["weight"] = float(cells["weight"])
        except ValueError:
            raise UserError(f'{where}: "weight" is {cells["weight"]!r}; it must be a number') from None
    label = row.get("label", "").lower()  # "True" is Python's
    if label in ("true", "false"):
        cells["label"] = label == "true"
    return cells


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a numpy value
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"type {type(value).__name__}")
