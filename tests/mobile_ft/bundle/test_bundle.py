"""What a bundle.json must be, and that every byte of a bundle is checked."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.api.describe import describe
from mobile_ft.bundle.description import check_files, read_bundle
from mobile_ft.bundle.flat_tensor import tensor_places
from mobile_ft.errors import UserError
from tests.small_index import index

CONVERSION = {"source": "Q6_K", "format": "q8_0_g16", "weights": 10, "error": 1e-4}


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_bundle, tmp_path / "bundle"))


@pytest.fixture
def edit(bundle: Path) -> Callable[..., None]:
    """Sets a value of bundle.json, by the keys that lead to it; deletes it where none is given."""
    index = bundle / "bundle.json"

    def change(*keys: str, **given: Any) -> None:
        description = values = json.loads(index.read_text())
        for key in keys[:-1]:
            values = values[key]
        if "value" in given:
            values[keys[-1]] = given["value"]
        else:
            del values[keys[-1]]
        index.write_text(json.dumps(description))

    return change


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_whole_bundle(small_bundle: Path) -> None:
    bundle = read_bundle(small_bundle)
    check_files(bundle)
    files = {path.name for path in small_bundle.iterdir()}
    assert files == {"bundle.json", "weights.ptd", *bundle.files}
    assert bundle.model.name == "small" and bundle.model.layer_types == ()
    assert (bundle.lora.rank, bundle.lora.scale, bundle.lora.use_rslora) == (4, 2.0, False)
    assert bundle.weights.size == (small_bundle / "weights.ptd").stat().st_size
    tensors = {
        name for unit in json.loads((small_bundle / "bundle.json").read_text())["units"] for name in unit["weights"]
    }
    assert tensors < set(bundle.weights.sha256)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["version"], 3, "version 3, this program reads version 6"),
        (["format"], "other", "format is 'other'"),
        (["max_seq_len"], 0, "max_seq_len is 0"),
        (["max_seq_len"], True, "max_seq_len is True"),
        (["max_seq_len"], 2**31, "max_seq_len is 2147483648"),
        (["max_seq_len"], "64", "max_seq_len is '64'"),
        (["activation"], "int2", "activation is 'int2'; known: exact, int8, int4, approx2bit"),
        (["activation"], ["exact"], "activation is"),
        (["formats"], {"a": "q5_0"}, "formats has 'q5_0'"),
        (["formats"], {"a": []}, "formats has []"),
        (["formats"], "q4_0", "formats is 'q4_0'; it must be an object"),
        (["conversions"], 1, "not iterable"),
        (["conversions"], [CONVERSION | {"format": "q5_0"}], "conversions has 'q5_0'"),
        (["conversions"], [CONVERSION | {"source": "a\n"}], "source is 'a\\n'; it must be a short name"),
        (["conversions"], [CONVERSION | {"source": "a" * 65}], "it must be a short name"),
        (["conversions"], [CONVERSION | {"source": 1}], "source is 1"),
        (["conversions"], [CONVERSION | {"weights": -1}], "weights is -1"),
        (["conversions"], [CONVERSION | {"error": float("nan")}], "error is nan"),
        (["conversions"], [CONVERSION | {"error": -0.1}], "error is -0.1"),
        (["lora"], [], "list indices"),
        (["lora", "rank"], 4.0, "rank is 4.0"),
        (["lora", "alpha"], float("nan"), "alpha is nan"),
        (["lora", "alpha"], float("inf"), "alpha is inf"),
        (["lora", "use_rslora"], 1, "use_rslora is 1"),
        (["lora", "targets"], ["q_proj", "lm_head"], "targets has 'lm_head'"),
        (["model", "hidden_size"], "wide", "hidden_size is 'wide'"),
        (["model", "num_key_value_heads"], 0, "num_key_value_heads is 0"),
        (["model", "sliding_window"], -1, "sliding_window is -1"),
        (["model", "rms_norm_eps"], "small", "rms_norm_eps is 'small'"),
        (["model", "tie_word_embeddings"], "yes", "tie_word_embeddings is 'yes'"),
        (["model", "model_type"], "mamba", "model_type is 'mamba'; known: llama, mistral, mixtral"),
        (["model", "layer_types"], ["full_attention"], "1 layer_types for 4 layers"),
        (["model", "layer_types"], ["other"] * 4, "layer_types has 'other'"),
        (["model", "rope_scaling"], 2, "rope_scaling is 2"),
        (["model", "more"], 2, "more"),
        (["model", "hidden_size"], 65, "hidden_size is 65; it must be a multiple of 32"),
        (["checksums", "program.pte", "size"], -1, "size is -1"),
        (["checksums", "program.pte", "sha256"], "abc", "sha256 is 'abc'; it must be a SHA-256"),
        (["weights", "sha256", "inv_freq"], 1, "inv_freq is 1"),
        (["weights", "index_size"], 2**25, "index_size 33554432 exceeds size"),
        (["weights", "index_size"], 2**40, "index_size is 1099511627776"),
        (["lora", "alpha"], 10**400, "alpha is 1000"),
        (["format"], {"a": 1}, "format is {'a': 1}"),
        (["model", "model_type"], ["llama"], "model_type is ['llama']"),
        (["model", "num_hidden_layers"], 2**27, "num_hidden_layers is 134217728; it must be at most 1000"),
        (["checksums"], [1], "'list' object has no attribute"),
        (["checksums"], {"a": []}, "list indices"),
    ],
)
def test_what_is_no_description(
    edit: Callable[..., None], bundle: Path, keys: list[str], value: Any, message: str
) -> None:
    edit(*keys, value=value)
    refused = refusal(lambda: read_bundle(bundle))
    assert refused.startswith(f"{bundle / 'bundle.json'}: ") and message in refused


def test_conversions(edit: Callable[..., None], bundle: Path) -> None:
    edit("conversions", value=[CONVERSION, CONVERSION | {"source": "Q8_0", "error": 0}])
    rows = describe(read_bundle(bundle)).summary()[1]
    assert rows["Q6_K stored as q8_0_g16"] == "relative error 0.01 %, 0.0 M weights"
    assert rows["Q8_0 stored as q8_0_g16"] == "exact, 0.0 M weights"
    assert describe(read_bundle(bundle)).to_json()["conversions"][0] == CONVERSION
    edit("conversions")  # as in bundles without it
    assert read_bundle(bundle).conversions == ()


@pytest.mark.parametrize(
    "keys", [["lora", "use_rslora"], ["weights"], ["weights", "index_sha256"], ["checksums"], ["model", "head_dim"]]
)
def test_what_is_missing(edit: Callable[..., None], bundle: Path, keys: list[str]) -> None:
    edit(*keys)
    assert f"('{keys[-1]}' is missing)" in refusal(lambda: read_bundle(bundle))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../secret", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\ud800", "weights.ptd", "bundle.json"],
)
def test_names_that_are_not_plain(edit: Callable[..., None], bundle: Path, name: str) -> None:
    edit("checksums", name, value={"size": 1, "sha256": "0" * 64})
    assert f"{name!r} is not a valid file name" in refusal(lambda: read_bundle(bundle))


@pytest.mark.parametrize("name", ["program.pte", "weights.ptd", "adapter_config.json"])
def test_files_that_are_none(bundle: Path, name: str, tmp_path: Path) -> None:
    path = bundle / name
    path.rename(tmp_path / "away")
    assert f"{path}: No such file" in refusal(lambda: check_files(read_bundle(bundle)))
    path.symlink_to(tmp_path / "away")
    assert f"{path}: not a regular file" in refusal(lambda: check_files(read_bundle(bundle)))
    path.unlink()
    os.mkfifo(path)  # opening it would wait for a writer
    assert f"{path}: not a regular file" in refusal(lambda: check_files(read_bundle(bundle)))
    path.unlink()
    path.mkdir()
    assert f"{path}: not a regular file" in refusal(lambda: check_files(read_bundle(bundle)))


def test_a_changed_byte_is_found(bundle: Path) -> None:
    """In any file, in the index of the weights, and in every tensor."""
    description = read_bundle(bundle)
    weights = bundle / "weights.ptd"
    places = tensor_places(weights.read_bytes()[: description.weights.index_size])
    damage = [(bundle / name, size // 2, "checksum does not match") for name, (size, _) in description.files.items()]
    damage += [(weights, 9, "the checksum of its index does not match")]
    damage += [
        (weights, start + size - 1, f"the checksum of {name} does not match") for name, (start, size) in places.items()
    ]
    for path, offset, message in damage:
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        path.write_bytes(content)
        refused = refusal(lambda: check_files(description))
        assert refused.startswith(f"{path}: ") and message in refused
        content[offset] ^= 1
        path.write_bytes(content)
    check_files(description)
    for path in (weights, bundle / "program.pte"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert f"has {len(whole) - 1} bytes, but bundle.json lists {len(whole)}" in refusal(
            lambda: check_files(description)
        )
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([(0, 4096), (0, 4096), (0, 4096)], "its tensors overlap"),
        ([(0, 1), (0, 1), (2**64 - 4096, 1)], "c ends at byte 18446744073709551617, but the file has 8192"),
        ([(0, 1), (0, 1), (5000, 1)], "c ends at byte 9097, but the file has 8192"),
    ],
)
def test_tensors_that_lie_elsewhere(
    edit: Callable[..., None], bundle: Path, segments: list[tuple[int, int]], message: str
) -> None:
    content = index(["a", "b", "c"], segments).ljust(8192, b"\0")
    (bundle / "weights.ptd").write_bytes(content)
    sums = {"a": sha256(content[4096:4097]), "b": sha256(content[4096:4097]), "c": "0" * 64}
    edit("weights", value={"size": 8192, "index_size": 4096, "index_sha256": sha256(content[:4096]), "sha256": sums})
    assert message in refusal(lambda: check_files(read_bundle(bundle)))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_an_index_of_other_tensors(edit: Callable[..., None], bundle: Path) -> None:
    edit("weights", "sha256", "inv_freq")
    assert "inv_freq is missing in the file or in bundle.json" in refusal(lambda: check_files(read_bundle(bundle)))
    content = b"not an index".ljust((bundle / "weights.ptd").stat().st_size)
    (bundle / "weights.ptd").write_bytes(content)
    edit("weights", "index_size", value=4096)
    edit("weights", "index_sha256", value=hashlib.sha256(content[:4096]).hexdigest())
    assert "weights.ptd: not a FlatTensor file" in refusal(lambda: check_files(read_bundle(bundle)))
