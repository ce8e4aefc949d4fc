import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from mobile_ft.data.packing import NO_LOSS, EncodedRow, TokenSequences, pack, write_token_file

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


def shuffled(count: int, seed: int) -> list[int]:
    """0 .. count - 1 by SplitMix64 and Fisher-Yates, as on every platform."""
    state = seed * 0x9E3779B97F4A7C15 + 0x7061636B * 0xD1342543DE82EF95

    def draw() -> int:
        nonlocal state
        state += 0x9E3779B97F4A7C15
        z = state % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    draw()
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = draw() % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def row_contents(rows: Iterable[EncodedRow]) -> list[tuple[list[int], list[int]]]:
    return [(row.tokens.tolist(), row.targets.tolist()) for row in rows]


def tensors_of(sequences: TokenSequences, folder: Path) -> dict[str, NDArray[Any]]:
    """As safetensors reads them back."""
    write_token_file(folder / "tensors", sequences)
    return load_file(folder / "tensors")


def unpack(file: dict[str, NDArray[Any]]) -> list[list[EncodedRow]]:
    """The rows of each sequence, by nothing but offsets and positions."""
    sequences = []
    for start, end in zip(file["offsets"][:-1], file["offsets"][1:], strict=True):
        assert 0 < end - start <= SEQ_LEN
        positions = file["positions"][start:end]
        starts = np.flatnonzero(positions == 0)
        assert starts[0] == 0
        rows = []
        for first, last in zip(starts, np.append(starts[1:], end - start), strict=True):
            assert positions[first:last].tolist() == list(range(last - first))
            place = slice(start + first, start + last)
            (weight,) = set(file["weights"][place].tolist()) if "weights" in file else (1.0,)
            rows.append(EncodedRow(file["tokens"][place], file["targets"][place], weight))
        sequences.append(rows)
    return sequences


def test_each_row_appears_whole_and_once(tmp_path: Path) -> None:
    rows = random_rows(300)
    file = tensors_of(pack(rows, SEQ_LEN, seed=7), tmp_path)
    assert sorted(row_contents(chain(*unpack(file)))) == sorted(row_contents(rows))
    assert file["offsets"][0] == 0 and file["offsets"][-1] == len(file["tokens"])


def test_packing_is_tight() -> None:
    rows = random_rows(300)
    places = sum(len(row.tokens) for row in rows)
    sequences = len(pack(rows, SEQ_LEN, seed=7).offsets) - 1
    assert places / SEQ_LEN <= sequences < 1.1 * places / SEQ_LEN


def test_pairs_stay_together(tmp_path: Path) -> None:
    rows = [row for row in random_rows(900) if len(row.tokens) <= SEQ_LEN // 2]
    pairs = list(zip(rows[::2], rows[1::2], strict=False))
    sequences = unpack(tensors_of(pack(pairs, SEQ_LEN, seed=7), tmp_path))
    packed = [pair for rows in sequences for pair in zip(rows[::2], rows[1::2], strict=True)]
    assert sorted(map(row_contents, packed)) == sorted(map(row_contents, pairs))
    assert any(len(rows) > 2 for rows in sequences)


def test_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    rows = random_rows(50)
    first, again, other = (tensors_of(pack(rows, SEQ_LEN, seed), tmp_path) for seed in (1, 1, 2))
    assert first["tokens"].tolist() == again["tokens"].tolist()
    assert first["offsets"].tolist() == again["offsets"].tolist()
    assert first["tokens"].tolist() != other["tokens"].tolist()
    full = [EncodedRow(np.full(SEQ_LEN, i, np.int32), np.full(SEQ_LEN, i, np.int32)) for i in range(8)]
    packed = tensors_of(pack(full, SEQ_LEN, seed=5), tmp_path)
    assert packed["tokens"][::SEQ_LEN].tolist() == shuffled(8, 5) != list(range(8))


def test_token_file(tmp_path: Path) -> None:
    path = tmp_path / "train.safetensors"
    path.write_text("old")
    rows = random_rows(20)
    write_token_file(path, pack(rows, SEQ_LEN, seed=0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.safetensors"]
    expected = {"tokens": "int32", "targets": "int32", "positions": "int32", "offsets": "int64"}
    assert {name: tensor.dtype.name for name, tensor in load_file(path).items()} == expected
    with safe_open(path, "numpy") as file:
        assert file.metadata() is None
    data = path.read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    starts = {name: tensor["data_offsets"][0] for name, tensor in json.loads(data[8 : 8 + header_bytes]).items()}
    # The runtime reads the tensors where they lie.
    assert header_bytes % 8 == starts["offsets"] % 8 == 0 and all(start % 4 == 0 for start in starts.values())


def test_weights_and_pairs_in_the_file(tmp_path: Path) -> None:
    rows = random_rows(40)
    weighted = [replace(row, weight=0.25 * index) for index, row in enumerate(rows)]
    file = tensors_of(pack(weighted, SEQ_LEN, seed=3), tmp_path)
    assert file["weights"].dtype == np.float32
    found = {row_contents([row])[0][0][0]: row.weight for row in chain(*unpack(file))}
    assert found == {row_contents([row])[0][0][0]: row.weight for row in weighted}
    assert "weights" not in tensors_of(pack([replace(row, weight=1) for row in rows], SEQ_LEN, seed=3), tmp_path)

    short = [row for row in rows if len(row.tokens) <= SEQ_LEN // 2]
    pairs = [(short[0], short[1]), (replace(short[2], weight=2), replace(short[3], weight=2))]
    assert set(tensors_of(pack(pairs, SEQ_LEN, seed=0), tmp_path)["weights"].tolist()) == {1, 2}
    with safe_open(tmp_path / "tensors", "numpy") as opened:
        assert opened.metadata() == {"rows": "pairs"}


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.safetensors"
    path.write_text("old")

    def full_disk(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_token_file(path, pack(random_rows(2), SEQ_LEN, seed=0))
    assert path.read_text() == "old"
