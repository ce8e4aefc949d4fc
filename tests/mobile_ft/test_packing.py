from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from mobile_ft.packing import NO_LOSS, EncodedRow, TokenSequences, pack, write_token_file

SEQ_LEN = 32


def random_rows(count: int) -> list[EncodedRow]:
    """Rows of 1 to SEQ_LEN places; no two are the same."""
    generator = np.random.default_rng(0)
    rows = []
    for index in range(count):
        places = int(generator.integers(1, SEQ_LEN + 1))
        tokens = np.arange(places, dtype=np.int32) + 1000 * index
        targets = np.where(generator.random(places) < 0.5, tokens + 1, NO_LOSS).astype(np.int32)
        rows.append(EncodedRow(tokens, targets))
    return rows


def row_contents(rows: list[EncodedRow]) -> list[tuple[list[int], list[int]]]:
    return [(row.tokens.tolist(), row.targets.tolist()) for row in rows]


def unpack(sequences: TokenSequences) -> list[EncodedRow]:
    """The rows in `sequences`, by nothing but offsets and positions."""
    rows = []
    for start, end in zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True):
        assert 0 < end - start <= SEQ_LEN
        positions = sequences.positions[start:end]
        starts = np.flatnonzero(positions == 0)
        assert starts[0] == 0
        for first, last in zip(starts, np.append(starts[1:], end - start), strict=True):
            assert positions[first:last].tolist() == list(range(last - first))
            place = slice(start + first, start + last)
            rows.append(EncodedRow(sequences.tokens[place], sequences.targets[place]))
    return rows


def test_each_row_appears_whole_and_once() -> None:
    rows = random_rows(300)
    packed = pack(rows, SEQ_LEN, seed=7)
    assert sorted(row_contents(unpack(packed))) == sorted(row_contents(rows))
    assert packed.offsets[0] == 0 and packed.offsets[-1] == len(packed.tokens)
    dtypes = [tensor.dtype for tensor in (packed.tokens, packed.targets, packed.positions, packed.offsets)]
    assert dtypes == [np.int32, np.int32, np.int32, np.int64]


def test_packing_is_tight() -> None:
    rows = random_rows(300)
    places = sum(len(row.tokens) for row in rows)
    sequences = len(pack(rows, SEQ_LEN, seed=7).offsets) - 1
    assert places / SEQ_LEN <= sequences < 1.1 * places / SEQ_LEN


def test_order_depends_on_the_seed_alone() -> None:
    rows = random_rows(50)
    first, again, other = (pack(rows, SEQ_LEN, seed) for seed in (1, 1, 2))
    assert first.tokens.tolist() == again.tokens.tolist()
    assert first.offsets.tolist() == again.offsets.tolist()
    assert first.tokens.tolist() != other.tokens.tolist()
    full = [EncodedRow(np.full(SEQ_LEN, i, np.int32), np.full(SEQ_LEN, i, np.int32)) for i in range(8)]
    # numpy promises this stream for PCG64, so a fixed seed means a fixed order everywhere.
    order = np.random.Generator(np.random.PCG64(5)).permutation(8).tolist()
    assert pack(full, SEQ_LEN, seed=5).tokens[::SEQ_LEN].tolist() == order != list(range(8))


def test_token_file(tmp_path: Path) -> None:
    sequences = pack(random_rows(20), SEQ_LEN, seed=0)
    path = tmp_path / "train.safetensors"
    path.write_text("old")
    write_token_file(path, sequences)
    file = load_file(path)
    assert sorted(file) == ["offsets", "positions", "targets", "tokens"]
    for name, tensor in file.items():
        assert tensor.dtype == getattr(sequences, name).dtype
        assert np.array_equal(tensor, getattr(sequences, name))
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.safetensors"]


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.safetensors"
    path.write_text("old")

    def full_disk(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_token_file(path, pack(random_rows(2), SEQ_LEN, seed=0))
    assert path.read_text() == "old"
