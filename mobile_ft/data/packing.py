"""Packs encoded rows into sequences and writes them as a token file (docs/reference/bundle_format.md)."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mobile_ft.files.disk import sync_to_disk
from mobile_ft.runtime import pack as pack_places

NO_LOSS = -100  # target of positions without loss

_ITEM_BYTES = {"I64": 8, "I32": 4, "F32": 4, "U8": 1}


@dataclass(frozen=True)
class EncodedRow:
    """A row of L tokens as L - 1 positions: tokens and targets, int32 [L - 1]. Targets without loss are NO_LOSS."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    weight: float = 1.0  # weight of its loss, at least 0
    label: bool | None = None  # whether the answer is liked, for loss kto


EncodedPair = tuple[EncodedRow, EncodedRow]  # chosen and rejected


@dataclass(frozen=True)
class TokenSequences:
    """The content of a token file."""

    rows: list[EncodedRow]  # in the order of the sequences
    offsets: NDArray[np.int64]  # [S + 1], the start of each of S sequences in all positions, and the end of the last
    pairs: bool  # whether rows are pairs, the chosen one first

    @property
    def labelled(self) -> bool:
        return self.rows[0].label is not None

    @property
    def weighted(self) -> bool:
        return any(np.float32(row.weight) != 1 for row in self.rows)

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """Yields the tensor `name` row by row. As a whole, it would need as much memory as the data."""
        if name == "offsets":
            yield self.offsets
            return
        counting = np.arange(max(len(row.tokens) for row in self.rows), dtype=np.int32)
        for row in self.rows:
            if name == "tokens":
                yield row.tokens
            elif name == "targets":
                yield row.targets
            elif name == "positions":
                yield counting[: len(row.tokens)]
            elif name == "weights":
                yield np.full(len(row.tokens), row.weight, np.float32)
            elif name == "labels":
                yield np.full(len(row.tokens), row.label, np.uint8)


def pack(rows: Sequence[EncodedRow | EncodedPair], seq_len: int, seed: int) -> TokenSequences:
    """Shuffles `rows` with `seed` and packs them unsplit into sequences of at most `seq_len` positions, as devices do.

    `rows` must not be empty, and each row, or both rows of a pair together, must have 1 to `seq_len` positions.
    Positions restart at 0 with each row.
    """
    together = [row if isinstance(row, tuple) else (row,) for row in rows]
    places = [sum(len(row.tokens) for row in group) for group in together]
    sequences = pack_places(places, seq_len, seed)
    lengths = [sum(places[index] for index in sequence) for sequence in sequences]
    return TokenSequences(
        rows=[row for sequence in sequences for index in sequence for row in together[index]],
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
        pairs=isinstance(rows[0], tuple),
    )


def apart(rows: Sequence[EncodedRow]) -> TokenSequences:
    """Puts each row in a sequence of its own. `rows` must not be empty."""
    lengths = [len(row.tokens) for row in rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return TokenSequences(list(rows), offsets, pairs=False)


def write_token_file(path: Path, sequences: TokenSequences) -> None:
    """Writes the token file. `path` is replaced as a whole or not at all, even if power fails. Raises OSError."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        # Written in parts, because safetensors' own `save` needs all tensors at once and copies them twice.
        tensors = _tensors(sequences)
        file.write(_header(tensors, "pairs" if sequences.pairs else "labels" if sequences.labelled else ""))
        for name in tensors:
            for part in sequences.parts(name):
                file.write(part.data)
        file.flush()
        sync_to_disk(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        sync_to_disk(folder)
    finally:
        os.close(folder)


def _tensors(sequences: TokenSequences) -> dict[str, tuple[str, int]]:
    """Returns the type and length of each tensor, the largest type first, so that all are aligned."""
    places = int(sequences.offsets[-1])
    tensors = {"offsets": ("I64", len(sequences.offsets))}
    tensors |= {name: ("I32", places) for name in ("tokens", "targets", "positions")}
    if sequences.weighted:
        tensors["weights"] = ("F32", places)
    if sequences.labelled:
        tensors["labels"] = ("U8", places)
    return tensors


def _header(tensors: dict[str, tuple[str, int]], rows: str) -> bytes:
    """Returns the header of the safetensors file, with the kind of rows if it is not empty."""
    fields: dict[str, object] = {"__metadata__": {"rows": rows}} if rows else {}
    start = 0
    for name, (dtype, length) in tensors.items():
        end = start + length * _ITEM_BYTES[dtype]
        fields[name] = {"dtype": dtype, "shape": [length], "data_offsets": [start, end]}
        start = end
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()  # the same bytes as devices write
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header
