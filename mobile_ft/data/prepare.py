"""Tokenizes training data with a loss mask, truncates and packs it, and writes a token file."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mobile_ft.data.packing import NO_LOSS, EncodedPair, EncodedRow, pack, write_token_file
from mobile_ft.data.row_files import read_text
from mobile_ft.data.rows import BadRow, DataSource, FileRow, JsonRow, Row, Split, read_rows_and_errors
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.runtime import DataConfig, RowReader, RowText, RuntimeFailure

Loss = Literal["sft", "dpo", "ipo", "orpo", "simpo", "kto"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
PAIR_LOSSES = ("dpo", "ipo", "orpo", "simpo")  # of chosen and rejected answers

Tokens = NDArray[np.int32]
LossMask = NDArray[np.bool_]

_MOST_NAMED = 10  # malformed rows in a message

# Called with each row: its place, its text, and the tokens and loss mask of each side, before truncation.
OnRow = Callable[[str, RowText, list[tuple[Tokens, LossMask]]], None]

# A side of a row: its text, the spans of characters that are learned, and whether a chat template rendered it.
_Side = tuple[str, list[tuple[int, int]], bool]


@dataclass
class EncodedRows:
    """Rows or pairs that are ready to pack, and statistics of all rows."""

    rows: list[EncodedRow | EncodedPair]
    read: int = 0
    truncated: int = 0  # rows cut at the end
    dropped: int = 0  # rows left out because nothing to learn remained
    bad: int = 0  # rows left out because they are malformed
    bad_rows: list[str] = field(default_factory=list)  # errors of the first malformed rows
    forms: Counter[str] = field(default_factory=Counter)  # number of rows by form


@dataclass(frozen=True)
class DataStats:
    """Statistics of `prepare`. A preference counts as one row."""

    rows: int  # rows read
    sequences: int  # sequences written
    tokens: int  # positions written
    target_tokens: int  # positions with loss
    truncated: int  # rows cut at the end
    dropped: int  # rows left out because nothing to learn remained
    bad: int = 0  # rows left out because they are malformed
    bad_rows: tuple[str, ...] = ()  # errors of the first malformed rows
    forms: Mapping[str, int] = field(default_factory=dict)  # number of rows by form


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

    Preferences require a loss of pairs or "kto", rows with a label "kto", and all others "sft". `options` are those of
    `data_options`. Raises UserError if the data cannot be used and OSError if `out` cannot be written.
    """
    encoded = encode_rows(read_rows_and_errors(data, split), tokenizer, seq_len, loss, options)
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
    rows: Iterable[Row | BadRow],
    tokenizer: Tokenizer,
    seq_len: int,
    loss: Loss = "sft",
    options: Mapping[str, str] | None = None,
    on_row: OnRow = lambda where, text, sides: None,
) -> EncodedRows:
    """Encodes `rows` as tokens and targets of 1 to `seq_len` positions. Each answer of a pair has at most half.

    The loss "kto" takes a preference as a liked and a disliked row, as TRL does.

    Long texts are split into windows that overlap by one token, so that every token is predicted once. Other long rows
    are truncated at the end. Rows of weight 0 are left out. Raises UserError if a row cannot be used with the model or
    the loss (unless the option `on_bad_row` is "skip"), or if all rows are dropped.
    """
    shortest = 2 if loss in PAIR_LOSSES else 1
    if seq_len < shortest:
        raise UserError(f"seq_len {seq_len}: must be at least {shortest}")
    settings = dict(options or {})
    reader = _row_reader(tokenizer, settings)
    skip = settings.get("on_bad_row") == "skip"
    encoded, first = EncodedRows([]), ""
    for row in rows:
        encoded.read += 1
        first = first or row.where
        try:
            if isinstance(row, BadRow):
                raise row.error
            _encode(row, reader, tokenizer, seq_len, loss, encoded, on_row)
        except UserError as error:
            if not skip:
                raise
            encoded.bad += 1
            if len(encoded.bad_rows) < _MOST_NAMED:
                encoded.bad_rows.append(str(error))
    if not encoded.rows:
        if encoded.bad:
            raise UserError(f"{encoded.bad_rows[0]}; {encoded.bad} of {encoded.read} rows are malformed")
        half = loss in PAIR_LOSSES
        room = f"{seq_len // 2} tokens (half of seq_len for each answer)" if half else f"{seq_len} tokens"
        raise UserError(
            f"{first} and all following rows: no tokens to train on within {room}; raise seq_len so that it reaches "
            "the completions, or remove rows that are empty or have weight 0"
        )
    return encoded


def encode_each(
    rows: Iterable[Row], tokenizer: Tokenizer, seq_len: int, options: Mapping[str, str] | None = None
) -> Iterator[tuple[Row, EncodedRows]]:
    """Yields each row with what `encode_rows` makes of it for the loss "sft", which may be nothing."""
    reader = _row_reader(tokenizer, dict(options or {}))
    for row in rows:
        encoded = EncodedRows([])
        _encode(row, reader, tokenizer, seq_len, "sft", encoded, lambda where, text, sides: None)
        yield row, encoded


def read_row_text(row: JsonRow, reader: RowReader) -> RowText:
    """Returns a row's text and the spans of it that are learned. Raises UserError, with its place, if it is
    malformed."""
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
    """Encodes a row and adds it to `encoded`."""
    if isinstance(row, FileRow):
        if loss != "sft":
            raise UserError(f"{row.where}: is plain text; loss {loss} requires prompts and answers")
        _keep_windows(_encode_text(row.where, read_text(row.file), tokenizer), tokenizer, seq_len, 1.0, encoded)
        encoded.forms["text file"] += 1
        return
    text = read_row_text(row, reader)
    _check_loss(row.where, text, loss)
    if text.plain:
        tokens = _encode_text(row.where, [text.sides[0][0]], tokenizer, ends=True)
        sides = [(tokens, np.ones(len(tokens), np.bool_))]
        _keep_windows(tokens, tokenizer, seq_len, text.weight, encoded)
    else:
        sides = [_encode_side(row.where, side, tokenizer) for side in text.sides]
        if loss == "kto":
            labels = [text.label] if len(sides) == 1 else [True, False]
            answers = [([side], label) for side, label in zip(sides, labels, strict=True)]
            _keep_answers(answers, text.weight, seq_len, encoded)
        else:
            _keep_answers([(sides, None)], text.weight, seq_len // len(sides), encoded)
    encoded.forms[text.form] += 1
    on_row(row.where, text, sides)


def _check_loss(where: str, text: RowText, loss: Loss) -> None:
    """Raises UserError if `loss` does not learn from such a row."""
    preference, labelled = len(text.sides) == 2, text.label is not None
    if loss == "sft" and preference:
        raise UserError(f'{where}: is a preference, with "chosen" and "rejected"; use loss dpo')
    if loss == "sft" and labelled:
        raise UserError(
            f'{where}: has a "label"; use loss kto, or keep the rows whose label is true, without it, and use loss sft'
        )
    if loss in PAIR_LOSSES and not preference:
        raise UserError(
            f'{where}: is not a preference; loss {loss} requires "prompt", "chosen" and "rejected"; '
            f"use loss {'kto' if labelled else 'sft'}"
        )
    if loss == "kto" and not (preference or labelled):
        raise UserError(
            f'{where}: has no "label"; loss kto requires true or false beside a prompt and its answer, or a preference'
        )


def _keep_windows(tokens: Tokens, tokenizer: Tokenizer, seq_len: int, weight: float, encoded: EncodedRows) -> None:
    pieces = _windows(tokens, tokenizer, seq_len)
    kept = [replace(piece, weight=weight) for piece in pieces if _teaches(piece, weight)]
    encoded.dropped += not kept
    encoded.rows += kept


def _keep_answers(
    answers: list[tuple[list[tuple[Tokens, LossMask]], bool | None]], weight: float, places: int, encoded: EncodedRows
) -> None:
    """Keeps those of a row's answers, or of its pairs of answers, that have something to learn, with their labels."""
    kept = truncated = False
    for sides, label in answers:
        cut = [replace(_cut(tokens, learned, places), weight=weight, label=label) for tokens, learned in sides]
        if all(_teaches(row, weight) for row in cut):
            kept = True
            truncated |= any(len(tokens) > places + 1 for tokens, _ in sides)
            encoded.rows.append(cut[0] if len(cut) == 1 else (cut[0], cut[1]))
    encoded.truncated += truncated
    encoded.dropped += not kept


def _teaches(row: EncodedRow, weight: float) -> bool:
    return bool(np.float32(weight) > 0 and np.any(row.targets != NO_LOSS))


def _encode_side(where: str, side: _Side, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    """Returns tokens, int32 [L], and their loss mask, bool [L]."""
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
    """Returns BOS if the model requires it and the text does not begin with it, else nothing."""
    start = tokenizer.encode("", add_special=True)
    return [] if start and len(tokens) and tokens[0] == start[0] else start


def _encode_text(where: str, pieces: Iterable[str], tokenizer: Tokenizer, ends: bool = False) -> Tokens:
    """Tokenizes plain text. With `ends`, adds the end-of-text token."""
    tokens = array("i")  # grows without a copy at the end
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
    """Returns a mask of the tokens that overlap the characters [start, end) of any span."""
    places = np.array(offsets, np.int64).reshape(-1, 2)
    mask = np.zeros(len(places), np.bool_)
    for start, end in spans:
        mask |= (places[:, 0] < end) & (places[:, 1] > start)
    return mask


def _windows(tokens: Tokens, tokenizer: Tokenizer, seq_len: int) -> Iterator[EncodedRow]:
    """Yields pieces of a text. If the model has BOS, each begins with it, in place of the last token of the piece
    before. Otherwise the pieces are views, because a copy of a long text would double the memory."""
    bos = np.array(tokenizer.encode("", add_special=True), np.int32)
    for start in range(0, len(tokens) - 1, seq_len):
        window = tokens[start : start + seq_len + 1]
        inputs = np.concatenate([bos, window[1:-1]]) if len(bos) else window[:-1]
        yield EncodedRow(inputs, window[1:])


def _cut(tokens: Tokens, learned: LossMask, places: int) -> EncodedRow:
    tokens, learned = tokens[: places + 1], learned[: places + 1]
    return EncodedRow(tokens[:-1], np.where(learned[1:], tokens[1:], np.int32(NO_LOSS)))
