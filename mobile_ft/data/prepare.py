"""Training data from its source to a token file: rows become tokens with a loss mask, cut to length and packed."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mobile_ft.data.packing import NO_LOSS, EncodedPair, EncodedRow, pack, write_token_file
from mobile_ft.data.row_files import read_text
from mobile_ft.data.rows import DataSource, FileRow, JsonRow, Row, Split, read_rows
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.runtime import DataConfig, RowReader, RowText, RuntimeFailure

Loss = Literal["sft", "dpo"]

Tokens = NDArray[np.int32]
LossMask = NDArray[np.bool_]

_MOST_NAMED = 10  # bad rows

# Hears of each row: where it is, what it says, and the tokens of each side with whether each is learned, before a cut.
OnRow = Callable[[str, RowText, list[tuple[Tokens, LossMask]]], None]

# A side of a row: its text, the characters of it that are learned, and whether a chat template rendered it.
_Side = tuple[str, list[tuple[int, int]], bool]


@dataclass
class EncodedRows:
    """Rows or pairs ready to pack, and what became of the others."""

    rows: list[EncodedRow] | list[EncodedPair]
    read: int = 0
    truncated: int = 0  # cut at the end
    dropped: int = 0  # left out, as nothing to learn remained
    bad: int = 0  # left out, as they cannot be used
    bad_rows: list[str] = field(default_factory=list)  # what is wrong with the first of them
    forms: Counter[str] = field(default_factory=Counter)  # how many rows had which form


@dataclass(frozen=True)
class DataStats:
    """What `prepare` did; a preference counts as one row."""

    rows: int  # read
    sequences: int  # written
    tokens: int  # places written
    target_tokens: int  # places with loss
    truncated: int  # rows cut at the end
    dropped: int  # rows left out, as nothing to learn remained
    bad: int = 0  # rows left out, as they cannot be used
    bad_rows: tuple[str, ...] = ()  # what is wrong with the first of them
    forms: Mapping[str, int] = field(default_factory=dict)  # how many rows had which form


def prepare(
    data: DataSource,
    split: Split,
    tokenizer: Tokenizer,
    seq_len: int,
    seed: int,
    out: Path,
    loss: Loss = "sft",
    options: Mapping[str, str] | None = None,
) -> DataStats:
    """Reads, encodes, packs and writes one split of `data` to the token file `out`.

    Preference rows are for the loss "dpo", and all others for "sft". `options` are those of `data_options`. Raises
    UserError where the data cannot be used and OSError where `out` cannot be written.
    """
    encoded = encode_rows(read_rows(data, split), tokenizer, seq_len, loss, options)
    sequences = pack(encoded.rows, seq_len, seed)
    write_token_file(out, sequences)
    return DataStats(
        rows=encoded.read,
        sequences=len(sequences.offsets) - 1,
        tokens=int(sequences.offsets[-1]),
        target_tokens=sum(int(np.count_nonzero(row.targets != NO_LOSS)) for row in sequences.rows),
        truncated=encoded.truncated,
        dropped=encoded.dropped,
        bad=encoded.bad,
        bad_rows=tuple(encoded.bad_rows),
        forms=dict(encoded.forms),
    )


def encode_rows(
    rows: Iterable[Row],
    tokenizer: Tokenizer,
    seq_len: int,
    loss: Loss = "sft",
    options: Mapping[str, str] | None = None,
    on_row: OnRow = lambda where, text, sides: None,
) -> EncodedRows:
    """Tokens and targets of `rows`, each of 1 to `seq_len` places, each side of a preference of up to half as many.

    Long texts are cut into windows that overlap by one token, so that every token is predicted once; other
    long rows lose their end. Rows of weight 0 are left out. Raises UserError where a row does not suit the model or
    the loss, or all rows are dropped; with the option `on_bad_row` "skip" the former are left out.
    """
    shortest = 2 if loss == "dpo" else 1
    if seq_len < shortest:
        raise UserError(f"sequence length {seq_len}; it should be at least {shortest}")
    settings = dict(options or {})
    reader = _row_reader(tokenizer, settings)
    skip = settings.get("on_bad_row") == "skip"
    encoded, first = EncodedRows([]), ""
    for row in rows:
        encoded.read += 1
        first = first or row.where
        try:
            _encode(row, reader, tokenizer, seq_len, loss, encoded, on_row)
        except UserError as error:
            if not skip:
                raise
            encoded.bad += 1
            if len(encoded.bad_rows) < _MOST_NAMED:
                encoded.bad_rows.append(str(error))
    if not encoded.rows:
        if encoded.bad:
            raise UserError(f"{encoded.bad_rows[0]}; {encoded.bad} of {encoded.read} rows cannot be used")
        room = f"{seq_len} tokens" if loss == "sft" else f"{seq_len // 2} tokens, half of a sequence for each answer"
        raise UserError(
            f"{first} and all rows after it: nothing to learn within {room}; rows should not be "
            "empty or of weight 0, and the sequence length should reach their completions"
        )
    return encoded


def read_row_text(row: JsonRow, reader: RowReader) -> RowText:
    """What a row says and what of it is learned. Raises UserError naming the row where it cannot be used."""
    try:
        return reader.read(row.json)
    except RuntimeFailure as error:
        raise UserError(f"{row.where}: {error}") from error


def _row_reader(tokenizer: Tokenizer, options: dict[str, str]) -> RowReader:
    try:
        return RowReader(tokenizer.template, DataConfig(**options))
    except RuntimeFailure as error:
        raise UserError(str(error)) from error


def _encode(
    row: Row, reader: RowReader, tokenizer: Tokenizer, seq_len: int, loss: Loss, encoded: EncodedRows, on_row: OnRow
) -> None:
    """Adds what a row becomes to `encoded`."""
    if isinstance(row, FileRow):
        if loss == "dpo":
            raise UserError(f"{row.where}: plain text; loss dpo needs preferences")
        _keep_windows(_encode_text(row.where, read_text(row.file), tokenizer), seq_len, 1.0, encoded)
        encoded.forms["text file"] += 1
        return
    text = read_row_text(row, reader)
    preference = len(text.sides) == 2
    if preference and loss == "sft":
        raise UserError(f'{row.where}: a preference, with "chosen" and "rejected"; loss dpo learns from these')
    if not preference and loss == "dpo":
        raise UserError(f'{row.where}: loss dpo needs rows with "prompt", "chosen" and "rejected"; use loss sft')
    if text.plain:
        tokens = _encode_text(row.where, [text.sides[0][0]], tokenizer, ends=True)
        sides = [(tokens, np.ones(len(tokens), np.bool_))]
        _keep_windows(tokens, seq_len, text.weight, encoded)
    else:
        sides = [_encode_side(row.where, side, tokenizer) for side in text.sides]
        _keep_answers(sides, text.weight, seq_len // len(sides), encoded)
    encoded.forms[text.form] += 1
    on_row(row.where, text, sides)


def _keep_windows(tokens: Tokens, seq_len: int, weight: float, encoded: EncodedRows) -> None:
    kept = [replace(piece, weight=weight) for piece in _windows(tokens, seq_len) if _teaches(piece, weight)]
    encoded.dropped += not kept
    encoded.rows += kept  # type: ignore[operator]


def _keep_answers(sides: list[tuple[Tokens, LossMask]], weight: float, places: int, encoded: EncodedRows) -> None:
    """Keeps a row, or both sides of a preference, if each has something to learn."""
    cut = [replace(_cut(tokens, learned, places), weight=weight) for tokens, learned in sides]
    if not all(_teaches(row, weight) for row in cut):
        encoded.dropped += 1
        return
    encoded.truncated += any(len(tokens) > places + 1 for tokens, _ in sides)
    encoded.rows += cut if len(cut) == 1 else [(cut[0], cut[1])]  # type: ignore[operator]


def _teaches(row: EncodedRow, weight: float) -> bool:
    return bool(np.float32(weight) > 0 and np.any(row.targets != NO_LOSS))


def _encode_side(where: str, side: _Side, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    """Tokens, int32 [L], and whether each is to be learned, bool [L]."""
    text, learned, rendered = side
    try:
        ids, offsets = tokenizer.encode_with_offsets(text)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    tokens, mask = np.array(ids, np.int32), _overlaps(offsets, learned)
    if rendered:
        return tokens, mask
    start = _start(tokens, tokenizer)
    end = [] if len(ids) and ids[-1] in tokenizer.end_ids else [tokenizer.eos_id]
    mask = np.concatenate([np.zeros(len(start), np.bool_), mask, np.ones(len(end), np.bool_)])
    return np.array([*start, *ids, *end], np.int32), mask


def _start(tokens: Tokens, tokenizer: Tokenizer) -> list[int]:
    """BOS, where the model wants one and the text does not begin with it."""
    start = tokenizer.encode("", add_special=True)
    return [] if start and len(tokens) and tokens[0] == start[0] else start


def _encode_text(where: str, pieces: Iterable[str], tokenizer: Tokenizer, ends: bool = False) -> Tokens:
    """Tokens of plain text; of a row, a token that `ends` it."""
    tokens = array("i")  # grows in place, with no copy at the end
    try:
        for part in tokenizer.encode_long(pieces):
            if not tokens:
                tokens.extend(_start(part, tokenizer))
            tokens.frombytes(part.tobytes())
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if not tokens:
        tokens.extend(tokenizer.encode("", add_special=True))
    if ends and (not tokens or tokens[-1] not in tokenizer.end_ids):
        tokens.append(tokenizer.eos_id)
    return np.asarray(tokens)


def _overlaps(offsets: list[tuple[int, int]], spans: list[tuple[int, int]]) -> LossMask:
    """Which tokens cover some of the characters [start, end) of any of the spans."""
    places = np.array(offsets, np.int64).reshape(-1, 2)
    mask = np.zeros(len(places), np.bool_)
    for start, end in spans:
        mask |= (places[:, 0] < end) & (places[:, 1] > start)
    return mask


def _windows(tokens: Tokens, seq_len: int) -> Iterator[EncodedRow]:
    """All of `tokens` as views: of a long text, a copy would weigh as much as all the rest."""
    for start in range(0, len(tokens) - 1, seq_len):
        window = tokens[start : start + seq_len + 1]
        yield EncodedRow(window[:-1], window[1:])


def _cut(tokens: Tokens, learned: LossMask, places: int) -> EncodedRow:
    tokens, learned = tokens[: places + 1], learned[: places + 1]
    return EncodedRow(tokens[:-1], np.where(learned[1:], tokens[1:], np.int32(NO_LOSS)))
