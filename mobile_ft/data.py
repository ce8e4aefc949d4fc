"""Training data from its source to a token file: rows become tokens with a loss mask, cut to length and packed."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mobile_ft.chat_template import Message
from mobile_ft.errors import UserError
from mobile_ft.packing import NO_LOSS, EncodedPair, EncodedRow, pack, write_token_file
from mobile_ft.rows import (
    ChatRow,
    DataSource,
    FileRow,
    PairRow,
    PreferenceRow,
    Row,
    Split,
    TextRow,
    read_rows,
    read_text,
)
from mobile_ft.tokenizer import Tokenizer

Loss = Literal["sft", "dpo"]

Tokens = NDArray[np.int32]
LossMask = NDArray[np.bool_]


@dataclass(frozen=True)
class EncodedRows:
    """Rows or pairs ready to pack; how many were cut at the end or left out as nothing to learn remained."""

    rows: list[EncodedRow] | list[EncodedPair]
    truncated: int
    dropped: int


@dataclass(frozen=True)
class DataStats:
    """What `prepare` did; a preference counts as one row."""

    rows: int  # read
    sequences: int  # written
    tokens: int  # places written
    target_tokens: int  # places with loss
    truncated: int  # rows cut at the end
    dropped: int  # rows left out, as nothing to learn remained


def prepare(
    data: DataSource, split: Split, tokenizer: Tokenizer, seq_len: int, seed: int, out: Path, loss: Loss = "sft"
) -> DataStats:
    """Reads, encodes, packs and writes one split of `data` to the token file `out`.

    Preference rows are for the loss "dpo", and all others for "sft". Raises UserError where the data cannot be used
    and OSError where `out` cannot be written.
    """
    rows = read_rows(data, split)
    encoded = encode_rows(rows, tokenizer, seq_len, loss)
    sequences = pack(encoded.rows, seq_len, seed)
    write_token_file(out, sequences)
    return DataStats(
        rows=len(rows),
        sequences=len(sequences.offsets) - 1,
        tokens=int(sequences.offsets[-1]),
        target_tokens=sum(int(np.count_nonzero(row.targets != NO_LOSS)) for row in sequences.rows),
        truncated=encoded.truncated,
        dropped=encoded.dropped,
    )


def encode_rows(rows: Sequence[Row], tokenizer: Tokenizer, seq_len: int, loss: Loss = "sft") -> EncodedRows:
    """Tokens and targets of `rows`, each of 1 to `seq_len` places, each side of a preference of up to half as many.

    Long texts are cut into windows that overlap by one token, so that every token is predicted once; other
    long rows lose their end. Rows of weight 0 are left out. Raises UserError where a row does not suit the model or
    the loss, or all rows are dropped.
    """
    shortest = 2 if loss == "dpo" else 1
    if seq_len < shortest:
        raise UserError(f"sequence length {seq_len}; it should be at least {shortest}")
    encoded = _encode_preferences(rows, tokenizer, seq_len) if loss == "dpo" else _encode_all(rows, tokenizer, seq_len)
    if not encoded.rows:
        room = f"{seq_len} tokens" if loss == "sft" else f"{seq_len // 2} tokens, half of a sequence for each answer"
        raise UserError(
            f"{rows[0].where} and all rows after it: nothing to learn within {room}; rows should not be "
            "empty or of weight 0, and the sequence length should reach their completions"
        )
    return encoded


def _encode_all(rows: Sequence[Row], tokenizer: Tokenizer, seq_len: int) -> EncodedRows:
    encoded: list[EncodedRow] = []
    truncated = dropped = 0
    for row in rows:
        if isinstance(row, PreferenceRow):
            raise UserError(f'{row.where}: a preference, with "chosen" and "rejected"; --loss dpo learns from these')
        if isinstance(row, TextRow | FileRow):
            pieces, cut = _windows(_encode_text(row, tokenizer), seq_len), False
        else:
            tokens, learned = _encode_answer(row, tokenizer)
            pieces, cut = [_cut(tokens, learned, seq_len)], len(tokens) > seq_len + 1
        kept = [replace(piece, weight=row.weight) for piece in pieces if _teaches(piece, row.weight)]
        dropped += not kept
        truncated += bool(kept) and cut
        encoded += kept
    return EncodedRows(encoded, truncated, dropped)


def _encode_preferences(rows: Sequence[Row], tokenizer: Tokenizer, seq_len: int) -> EncodedRows:
    places = seq_len // 2
    encoded: list[EncodedPair] = []
    truncated = dropped = 0
    for row in rows:
        if not isinstance(row, PreferenceRow):
            raise UserError(
                f'{row.where}: --loss dpo needs rows with "prompt", "chosen" and "rejected"; use --loss sft'
            )
        sides = [_encode_answer(side, tokenizer) for side in (row.chosen, row.rejected)]
        chosen, rejected = (replace(_cut(tokens, learned, places), weight=row.weight) for tokens, learned in sides)
        if not _teaches(chosen, row.weight) or not _teaches(rejected, row.weight):
            dropped += 1
            continue
        truncated += any(len(tokens) > places + 1 for tokens, _ in sides)
        encoded.append((chosen, rejected))
    return EncodedRows(encoded, truncated, dropped)


def _teaches(row: EncodedRow, weight: float) -> bool:
    return bool(np.float32(weight) > 0 and np.any(row.targets != NO_LOSS))


def _encode_answer(row: ChatRow | PairRow, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    """The row's tokens, int32 [L], and whether each is to be learned, bool [L]."""
    try:
        if isinstance(row, ChatRow):
            return _encode_chat(row.messages, row.learned_from, tokenizer)
        return _encode_pair(row, tokenizer)
    except UserError as error:
        raise UserError(f"{row.where}: {error}") from error


def _encode_chat(messages: list[Message], learned_from: int, tokenizer: Tokenizer) -> tuple[Tokens, LossMask]:
    text = tokenizer.render_chat(messages)
    ids, offsets = tokenizer.encode_with_offsets(text)
    loss = np.zeros(len(ids), np.bool_)
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or i < learned_from:
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
        return _encode_chat([question, {"role": "assistant", "content": row.completion}], 1, tokenizer)
    # One text, not two, so that a completion's leading space joins its word as it does everywhere else.
    text = row.prompt + row.completion
    ids, offsets = tokenizer.encode_with_offsets(text)
    start = tokenizer.encode("", add_special=True)
    loss = [False] * len(start) + _overlaps(offsets, len(row.prompt), len(text)).tolist() + [True]
    return np.array([*start, *ids, tokenizer.eos_id], np.int32), np.array(loss, np.bool_)


def _encode_text(row: TextRow | FileRow, tokenizer: Tokenizer) -> Tokens:
    tokens = array("i", tokenizer.encode("", add_special=True))  # grows in place, with no copy at the end
    try:
        for part in tokenizer.encode_long(read_text(row.file) if isinstance(row, FileRow) else [row.text]):
            tokens.frombytes(part.tobytes())
    except UserError as error:
        raise UserError(f"{row.where}: {error}") from error
    if isinstance(row, TextRow):
        tokens.append(tokenizer.eos_id)
    return np.asarray(tokens)


def _overlaps(offsets: list[tuple[int, int]], start: int, end: int) -> LossMask:
    """Which tokens cover some of the characters [start, end)."""
    spans = np.array(offsets, np.int64).reshape(-1, 2)
    overlap: LossMask = (spans[:, 0] < end) & (spans[:, 1] > start)
    return overlap


def _windows(tokens: Tokens, seq_len: int) -> Iterable[EncodedRow]:
    """All of `tokens` as views: of a long text, a copy would weigh as much as all the rest."""
    for start in range(0, len(tokens) - 1, seq_len):
        window = tokens[start : start + seq_len + 1]
        yield EncodedRow(window[:-1], window[1:])


def _cut(tokens: Tokens, learned: LossMask, places: int) -> EncodedRow:
    tokens, learned = tokens[: places + 1], learned[: places + 1]
    return EncodedRow(tokens[:-1], np.where(learned[1:], tokens[1:], np.int32(NO_LOSS)))
