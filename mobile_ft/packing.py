"""Packs encoded rows into sequences and writes them as a token file (docs/bundle_format.md)."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

NO_LOSS = -100  # target where nothing is learned

_OPEN_SEQUENCES = 16  # how many sequences first-fit looks at; more packs hardly tighter


@dataclass(frozen=True)
class EncodedRow:
    """A row of L tokens as L - 1 places, both int32 [L - 1]; a target is NO_LOSS where there is no loss."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]


@dataclass(frozen=True)
class TokenSequences:
    """The tensors of a token file: tokens, targets, positions int32 [N], offsets int64 [S + 1]."""

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    positions: NDArray[np.int32]
    offsets: NDArray[np.int64]


def pack(rows: list[EncodedRow], seq_len: int, seed: int) -> TokenSequences:
    """Shuffles `rows` by `seed` and packs them whole into sequences of at most `seq_len` places.

    `rows` is not empty and each row has 1 to `seq_len` places. Positions restart at 0 with each row.
    """
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))
    sequences: list[list[int]] = []
    room: dict[int, int] = {}  # open sequence -> places left
    for row in order.tolist():
        places = len(rows[row].tokens)
        fit = next((sequence for sequence, left in room.items() if places <= left), None)
        if fit is None:
            fit = len(sequences)
            sequences.append([])
            room[fit] = seq_len
            if len(room) > _OPEN_SEQUENCES:
                del room[min(room)]
        sequences[fit].append(row)
        room[fit] -= places
        if room[fit] == 0:
            del room[fit]

    packed = [rows[row] for sequence in sequences for row in sequence]
    lengths = [sum(len(rows[row].tokens) for row in sequence) for sequence in sequences]
    return TokenSequences(
        tokens=np.concatenate([row.tokens for row in packed]),
        targets=np.concatenate([row.targets for row in packed]),
        positions=np.concatenate([np.arange(len(row.tokens), dtype=np.int32) for row in packed]),
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]),
    )


def write_token_file(path: Path, sequences: TokenSequences) -> None:
    """Writes the token file; `path` is whole or untouched, even if power fails. Raises OSError."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(save(vars(sequences)))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
