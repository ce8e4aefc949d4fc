"""Packs encoded rows into sequences and writes them as a token file (docs/reference/bundle_format.md)."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mobile_ft.runtime import pack as pack_places

NO_LOSS = -100  # target where nothing is learned

_ITEM_BYTES = {"I64": 8, "I32": 4, "F32": 4}


@dataclass(frozen=True)
class EncodedRow:
    """A row of L tokens as L - 1 places, both int32 [L - 1]; a target is NO_LOSS where there is no loss."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    weight: float = 1.0  # of its loss, 0 or more


EncodedPair = tuple[EncodedRow, EncodedRow]  # chosen and rejected


@dataclass(frozen=True)
class TokenSequences:
    """What a token file holds."""

    rows: list[EncodedRow]  # one sequence after another
    offsets: NDArray[np.int64]  # [S + 1]; where in all places each sequence starts, and the last ends
    pairs: bool  # whether rows come in pairs, chosen then rejected

    @property
    def weighted(self) -> bool:
        return any(np.float32(row.weight) != 1 for row in self.rows)

    def parts(self, name: str) -> Iterator[NDArray[Any]]:
        """The tensor `name`, row by row: as a whole, that of a long text takes as much memory as the text."""
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


def pack(rows: Sequence[EncodedRow] | Sequence[EncodedPair], seq_len: int, seed: int) -> TokenSequences:
    """Shuffles `rows` by `seed` and packs them whole into sequences of at most `seq_len` places, as devices do.

    `rows` is not empty and each row, or both of a pair together, has 1 to `seq_len` places. Positions restart at 0
    with each row.
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


def write_token_file(path: Path, sequences: TokenSequences) -> None:
    """Writes the token file; `path` is whole or untouched, even if power fails. Raises OSError."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        # Part by part; safetensors' own `save` wants all tensors at once, and copies them twice.
        tensors = _tensors(sequences)
        file.write(_header(tensors, sequences.pairs))
        for name in tensors:
            for part in sequences.parts(name):
                file.write(part.data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _tensors(sequences: TokenSequences) -> dict[str, tuple[str, int]]:
    """Type and length of each tensor in the file; the one with the largest items first, so that all are aligned."""
    places = int(sequences.offsets[-1])
    tensors = {"offsets": ("I64", len(sequences.offsets))}
    tensors |= {name: ("I32", places) for name in ("tokens", "targets", "positions")}
    if sequences.weighted:
        tensors["weights"] = ("F32", places)
    return tensors


def _header(tensors: dict[str, tuple[str, int]], pairs: bool) -> bytes:
    """What a safetensors file begins with."""
    fields: dict[str, object] = {"__metadata__": {"rows": "pairs"}} if pairs else {}
    start = 0
    for name, (dtype, length) in tensors.items():
        end = start + length * _ITEM_BYTES[dtype]
        fields[name] = {"dtype": dtype, "shape": [length], "data_offsets": [start, end]}
        start = end
    header = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()  # to the byte as devices write it
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header
