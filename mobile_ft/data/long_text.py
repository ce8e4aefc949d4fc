"""Tokenizes a text of any length in bounded memory: overlapping windows are tokenized and joined where they agree.

A tokenizer needs about 180 bytes of memory per character, so a long text must be tokenized in parts. But near a cut,
the tokens of a part can differ from those of the whole text. Here each window starts within the previous one, at the
start of a word, and the two are joined in the middle of a run of equal tokens. The join is far enough from the end of
the first window, which lacks the following text, and from the start of the second, which may have an additional space.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

Encode = Callable[[str], Encoding]  # adds no special tokens

WINDOW = 1 << 16  # characters

_OVERLAP = 8  # the overlap of two windows is 1 / _OVERLAP of a window
_AGREED = 16  # consecutive words that must have the same tokens in both windows
# Windows that are this many times longer may be joined within a word, at a run of this many tokens.
_WIDE = 4


@dataclass(frozen=True)
class _Window:
    """The tokens of the characters [start, end) of the text."""

    start: int
    end: int
    last: bool  # whether the text ends here
    ids: NDArray[np.int32]
    starts: NDArray[np.int64]  # each token covers the characters [starts, ends) of the text
    ends: NDArray[np.int64]
    firsts: NDArray[np.bool_]  # whether a token is the first of its word, as the tokenizer splits a text


def encode_long(
    encode: Encode, pieces: Iterable[str], window: int = WINDOW, local: bool = True
) -> Iterator[NDArray[np.int32]]:
    """Yields the token ids (int32) of the text in `pieces`, in parts. Together they equal `encode(text)`.

    Needs memory for a few windows, which are four times as long if a word is longer than a window. `local` means that
    the tokenizer only compares neighbours within a word, as BPE does; otherwise the longest word must fit in memory.
    The same holds for the longest run of white space.
    """
    text = _Text(pieces, window)
    left, done, scale = _read(encode, text, 0, window), 0, 1
    splits = (
        left.last or len(set(encode("a b\nc").word_ids)) > 1
    )  # if it does not split words, the whole text is one long word
    while not left.last:
        within_words = local and (not splits or scale >= _WIDE)
        overlap = window * scale // _OVERLAP
        seam = None
        start = _restart(left, left.end - overlap, within_words)
        if start is not None:
            right = _read(encode, text, start, left.end + window * scale - overlap)
            seam = _seam(left, done, right, within_words)
            if seam and text.read(int(left.starts[seam[0]]), left.end).isspace():
                seam = None  # the text after white space can decide how it is split, or whether it is a token
        if seam is None:
            scale *= 2
            if left.end < left.start + window * scale:
                left = _read(encode, text, left.start, left.start + window * scale)
            continue
        yield left.ids[done : seam[0]]
        left, done, scale = right, seam[1], 1
        text.forget(left.start)
    yield left.ids[done:]


def _read(encode: Encode, text: "_Text", start: int, end: int) -> _Window:
    part = text.read(start, end)
    encoding = encode(part)
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2) + start
    words = np.array(encoding.word_ids, np.float64)
    return _Window(
        start,
        start + len(part),
        text.ends_by(end),
        np.array(encoding.ids, np.int32),
        offsets[:, 0],
        offsets[:, 1],
        np.concatenate([np.ones(1, np.bool_), words[1:] != words[:-1]])[: len(words)],
    )


def _restart(window: _Window, limit: int, within_words: bool) -> int | None:
    """Returns the last character up to `limit` (but not the window's first) at which a word, or else a token,
    starts."""
    # Tokens may share a character, as its bytes or parts of its normalized form.
    starts_afresh = (window.starts[1:] >= window.ends[:-1]) & (window.starts[1:] > window.start)
    fit = starts_afresh & (window.firsts[1:] | within_words) & (window.starts[1:] <= limit)
    places = np.flatnonzero(fit)
    return int(window.starts[1:][places[-1]]) if len(places) else None


def _seam(left: _Window, done: int, right: _Window, within_words: bool) -> tuple[int, int] | None:
    """Returns the index of a token of `left`, from `done` on, and that of the same token in `right`, or None.

    The text is joined there: `left` up to this token, then `right`. It is in the middle of the first run of equal
    tokens with _AGREED words.
    """
    _, i, j = np.intersect1d(_keys(left), _keys(right), assume_unique=True, return_indices=True)
    i, j = i[i >= done], j[i >= done]
    equal = (left.ids[i] == right.ids[j]) & (left.ends[i] == right.ends[j]) & (left.firsts[i] == right.firsts[j])
    if not np.any(equal):
        return None
    goes_on = equal[1:] & equal[:-1] & (np.diff(i) == 1) & (np.diff(j) == 1)
    run = np.concatenate([np.zeros(1, np.int64), np.cumsum(~goes_on)])
    counts = equal & (left.firsts[i] | within_words)
    long_runs = np.flatnonzero(np.bincount(run, weights=counts) >= _AGREED)
    if len(long_runs) == 0:
        return None
    places = np.flatnonzero(counts & (run == long_runs[0]))
    middle = places[len(places) // 2]
    return int(i[middle]), int(j[middle])


def _keys(window: _Window) -> NDArray[np.int64]:
    """Returns a number per token that combines its start and the number of earlier tokens with the same start."""
    before = np.arange(len(window.starts)) - np.searchsorted(window.starts, window.starts)
    return (window.starts << 24) + before


class _Text:
    """Buffers the part of a text that is still needed. Positions are characters of the whole text."""

    def __init__(self, pieces: Iterable[str], size: int) -> None:
        self._pieces = (part for piece in pieces for part in _slices(piece, size))
        self._start, self._held = 0, ""
        self._end: int | None = None  # length of the whole text, once known

    def read(self, start: int, end: int) -> str:
        """Returns the characters [start, end), or fewer at the end of the text."""
        while self._end is None and self._start + len(self._held) <= end:
            piece = next(self._pieces, None)
            if piece is None:
                self._end = self._start + len(self._held)
            else:
                self._held += piece
        return self._held[start - self._start : end - self._start]

    def ends_by(self, end: int) -> bool:
        """Whether the text ends at or before `end`. The text up to `end` must have been read."""
        return self._end is not None and self._end <= end

    def forget(self, start: int) -> None:
        """Drops the characters before `start`."""
        self._held = self._held[start - self._start :]
        self._start = start


def _slices(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
