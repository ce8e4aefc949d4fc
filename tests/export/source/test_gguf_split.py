"""GGUF files in parts, as gguf-split writes them, against the same file whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter, quantize

from mobile_ft.api.checkpoint import open_checkpoint
from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_file import read_gguf
from mobile_ft.export.source.gguf_model import GgufModel
from mobile_ft.model.shapes import linear_shapes, unit_types, vector_shapes
from tests.export.small_gguf import small_gguf

COUNT = 4


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """With numbers in it, and without a name."""
    path = tmp_path / "whole.gguf"
    path.write_bytes(small_gguf("gpt2"))
    reader = GGUFReader(path, "r+")
    rng = np.random.default_rng(0)
    for tensor in reader.tensors:
        values = rng.uniform(1, 2, tensor.shape[::-1]).astype(np.float32)
        tensor.data[:] = quantize(values, tensor.tensor_type) if tensor.data.dtype == np.uint8 else values
    reader.data.flush()
    return path


def write_parts(whole: Path, most: int = 3, **more: Any) -> list[Path]:
    """Of at most so many tensors each, in the folder `parts`."""
    reader = GGUFReader(whole)
    folder = whole.parent / "parts"
    folder.mkdir()
    writer = GGUFWriter(folder / "small.gguf", "llama", split_max_tensors=most, **more)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.iterdir())


def weights(model: Any) -> dict[str, np.ndarray]:
    c = model.config
    tables = {"model.embed_tokens.weight": model.packed("model.embed_tokens.weight", c.hidden_size, c.vocab_size).data}
    for unit in unit_types(c, 0):
        for name, (columns, rows) in linear_shapes(c, 0, unit).items():
            tables[name] = model.packed(f"model.layers.0.{name}.weight", columns, rows).data
        for name, shape in vector_shapes(c, 0, unit).items():
            tables[name] = model.vector(f"model.layers.0.{name}", int(np.prod(shape)))
    return tables


@pytest.mark.parametrize("more", [{}, {"small_first_shard": True}])
def test_weights_and_tokenizer_are_those_of_the_whole_file(whole: Path, tmp_path: Path, more: dict[str, bool]) -> None:
    parts = write_parts(whole, **more)
    assert len(parts) == COUNT + len(more) and parts[0].name == f"small-00001-of-0000{len(parts)}.gguf"
    expected = weights(GgufModel(whole))
    for part in (parts[0], parts[2]):
        model = open_checkpoint(part)
        assert model.config.name == "small"
        found = weights(model)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert np.array_equal(found[name], values), name
        assert np.array_equal(model.inv_freq(0), GgufModel(whole).inv_freq(0))
    for model, name in ((GgufModel(whole), "a"), (GgufModel(parts[1]), "b")):
        (tmp_path / name).mkdir()
        model.write_tokenizer(tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as error:
        GgufModel(path)
    return str(error.value)


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_missing_part_is_named(whole: Path, missing: int) -> None:
    parts = write_parts(whole)
    parts[missing].unlink()
    given = parts[1]
    assert refusal(given) == (
        f"{parts[missing]}: no such file; {given.name} is one of {COUNT} parts of a GGUF file; put all parts "
        "into one folder"
    )


def test_parts_that_are_none(whole: Path) -> None:
    parts = write_parts(whole)
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    assert "is part 1 of 4 of a split GGUF file, but its name does not match" in refusal(renamed)
    renamed.rename(parts[0])
    third = parts[2].read_bytes()
    parts[2].write_bytes(parts[3].read_bytes())
    assert refusal(parts[0]) == f"{parts[2]}: its split.no and split.count are not those of part 3 of 4"
    parts[2].write_bytes(whole.read_bytes())
    assert "are not those of part 3 of 4" in refusal(parts[0])
    parts[2].write_bytes(third[:-200])
    assert f"{parts[2]}: not a readable GGUF file, or truncated" in refusal(parts[1])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("split.no", -1, "metadata split.no is -1; it must be a non-negative integer"),
        ("split.no", "x", "metadata split.no is 'x'; it must be a non-negative integer"),
        ("split.count", 5, "is part 1 of 5 of a split GGUF file, but its name does not match"),
        ("split.count", "x", "is part 1 of 'x' of a split GGUF file, but its name does not match"),
        ("split.tensors.count", 11, "split.tensors.count is 11, but all parts together have 12 tensors"),
        ("split.tensors.count", None, "metadata split.tensors.count is None"),
    ],
)
def test_metadata_that_is_wrong(
    whole: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: object, message: str
) -> None:
    parts, read = write_parts(whole), read_gguf

    def changed(path: Path) -> Any:
        file = read(path)
        if path == parts[0]:
            file.fields[key] = value
        return file

    monkeypatch.setattr("mobile_ft.export.source.gguf_split.read_gguf", changed)
    monkeypatch.setattr("mobile_ft.export.source.gguf_model.read_gguf", changed)
    assert message in refusal(parts[0])


def test_tensors_twice(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, read = write_parts(whole), read_gguf

    def changed(path: Path) -> Any:
        file = read(path)
        if path == parts[1]:
            file.tensors.append(read(parts[0]).tensors[0])
        return file

    monkeypatch.setattr("mobile_ft.export.source.gguf_split.read_gguf", changed)
    assert "is also in an earlier part" in refusal(parts[0])
