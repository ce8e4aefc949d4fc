"""Training data from file to token file: rows become tokens with a loss mask, cut to length and packed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mobile_ft.errors import UserError
from mobile_ft.packing import NO_LOSS, EncodedRow, pack, write_token_file
from mobile_ft.rows import ChatRow, PairRow, Row, TextRow, read_rows
from mobile_ft.tokenizer import Message, Tokenizer

Tokens = NDArray[np.int32]
LossMask = NDArray[np.bool_]

_CHUNK = 1 << 16  # characters; tokenizing takes some 180 bytes of memory a character
# A newline between two printing characters: byte-level tokenizers cut there anyway. (SentencePiece puts a
# space before each chunk, one in _CHUNK characters.)
_LINE_END = re.compile(r"\S\r?\n(?=\S)")


@dataclass(frozen=True)
class EncodedRows:
    """Rows ready to pack, and how many were cut at the end or left out as nothing to learn remained."""

    rows: list[EncodedRow]
    truncated: int
    dropped: int


@dataclass(frozen=True)
class DataStats:
    """What `prepare` did."""

    rows: int  # read
    sequences: int  # written
    tokens: int  # places written
    target_tokens: int  # places with loss
    truncated: int  # rows cut at the end
    dropped: int  # rows left out, as nothing to learn remained


def prepare(
    path: Path, split: Literal["train", "valid"], tokenizer: Tokenizer, seq_len: int, seed: int, out: Path
) -> DataStats:
    """Reads, encodes, packs and writes one split of `path` to the token file `out`.

    Raises UserError where the data cannot be used and OSError where `out` cannot be written.
    """
    rows = read_rows(path, split)
    encoded = encode_rows(rows, tokenizer, seq_len)
    sequences = pack(encoded.rows, seq_len, seed)
    write_token_file(out, sequences)
    return DataStats(
        rows=len(rows),
        sequences=len(sequences.offsets) - 1,
        tokens=len(sequences.tokens),
        target_tokens=int(np.count_nonzero(sequences.targets != NO_LOSS)),
        truncated=encoded.truncated,
        dropped=encoded.dropped,
    )


def encode_rows(rows: Sequence[Row], tokenizer: Tokenizer, seq_len: int) -> EncodedRows:
    """Tokens and targets of `rows`, each of 1 to `seq_len` places.

    Long texts are cut into windows that overlap by one token, so that every token is predicted once; other
    long rows lose their end. Raises UserError where a row does not suit the model or all rows are dropped.
    """
    if seq_len < 1:
        raise UserError(f"sequence length {seq_len}; it should be at least 1")
    encoded: list[EncodedRow] = []
    truncated = dropped = 0
    for row in rows:
        tokens, loss = _encode(row, tokenizer)
        if isinstance(row, TextRow):
            pieces = list(_windows(tokens, loss, seq_len))
        else:
            pieces = [_shift(tokens[: seq_len + 1], loss[: seq_len + 1])]
        kept = [piece for piece in pieces if np.any(piece.targets != NO_LOSS)]
        if not kept:
            dropped += 1
        elif not isinstance(row, TextRow) and len(tokens) > seq_len + 1:
            truncated += 1
        encoded += kept
    if not encoded:
        raise UserError(
            f"{rows[0].where} and all rows after it: nothing to learn within {seq_len} tokens; "
            "rows should not be empty and the sequence length should reach their completions"
        )
    return EncodedRows(encoded, truncated, dropped)


def _encode(row: Row, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    """The row's tokens, int32 [L], and whether each is to be learned, bool [L]."""
    try:
        if isinstance(row, ChatRow):
            return _encode_chat(row.messages, tokenizer)
        if isinstance(row, PairRow):
            return _encode_pair(row, tokenizer)
        return _encode_text(row, tokenizer)
    except UserError as error:
        raise UserError(f"{row.where}: {error}") from error


def _encode_chat(messages: list[Message], tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    text = tokenizer.render_chat(messages)
    ids, offsets = tokenizer.encode_with_offsets(text)
    loss = np.zeros(len(ids), np.bool_)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.render_chat(messages[:i], add_generation_prompt=True)
        answered = tokenizer.render_chat(messages[: i + 1])
        if not (text.startswith(answered) and answered.startswith(prompt)):
            raise UserError(
                f"the model's chat template changes what comes before message {i + 1}, so where that answer "
                "starts is unknown; split the chat into rows that end with their only assistant message"
            )
        loss |= _overlaps(offsets, len(prompt), len(answered))
    return np.array(ids, np.int32), loss


def _encode_pair(row: PairRow, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    if tokenizer.has_chat_template:
        question = {"role": "user", "content": row.prompt}
        return _encode_chat([question, {"role": "assistant", "content": row.completion}], tokenizer)
    # One text, not two, so that a completion's leading space joins its word as it does everywhere else.
    text = row.prompt + row.completion
    ids, offsets = tokenizer.encode_with_offsets(text)
    start = tokenizer.encode("", add_special=True)
    loss = [False] * len(start) + _overlaps(offsets, len(row.prompt), len(text)).tolist() + [True]
    return np.array([*start, *ids, tokenizer.eos_id], np.int32), np.array(loss, np.bool_)


def _encode_text(row: TextRow, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    parts = [np.array(tokenizer.encode("", add_special=True), np.int32)]
    parts += [np.array(tokenizer.encode(chunk), np.int32) for chunk in _chunks(row.text)]
    if row.ends:
        parts.append(np.array([tokenizer.eos_id], np.int32))
    tokens = np.concatenate(parts)
    return tokens, np.ones(len(tokens), np.bool_)


def _chunks(text: str) -> Iterator[str]:
    """Pieces of at least _CHUNK characters that end with a line, so that a long text needs little memory."""
    start = 0
    while start < len(text):
        line_end = _LINE_END.search(text, start + _CHUNK)
        end = line_end.end() if line_end else len(text)
        yield text[start:end]
        start = end


def _overlaps(offsets: list[tuple[int, int]], start: int, end: int) -> LossMask:
    """Which tokens cover some of the characters [start, end)."""
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    overlap: LossMask = (spans[:, 0] < end) & (spans[:, 1] > start)
    return overlap


def _windows(tokens: Tokens, loss: LossMask, seq_len: int) -> Iterator[EncodedRow]:
    for start in range(0, len(tokens) - 1, seq_len):
        yield _shift(tokens[start : start + seq_len + 1], loss[start : start + seq_len + 1])


def _shift(tokens: Tokens, loss: LossMask) -> EncodedRow:
    targets = np.where(loss[1:], tokens[1:], np.int32(NO_LOSS))
    return EncodedRow(tokens[:-1], targets)
