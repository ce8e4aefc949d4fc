"""Programs that exports keep: equal to what is built, never another's, and gone when there are too many."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.export.program import cache
from mobile_ft.export.program.program import KindMethods, Program, ProgramSpec
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.unit_spec import Linear, UnitSpec

CONFIG = ModelConfig("tiny", 64, 96, 1, 4, 2, 16, 250, 1e-5, 1e4, 512, True)
UNIT = UnitSpec("mlp", "mlp", (Linear("mlp.up_proj", 64, 96, "q4_0", True),), (), (None, None), 4, 2.0, CONFIG)
SPEC = ProgramSpec(CONFIG, (UNIT,), "q8_0", "q8_0", 64)
PROGRAM = Program(b"a\nprogram\n" * 100, {"mlp": KindMethods(64, [{"shape": [-1, 96]}], True)}, 64)

# Exports a tiny model with random weights, and prints whether torch was needed.
EXPORT = """
import sys
from mobile_ft import export_bundle
export_bundle(sys.argv[1], sys.argv[2], random_init=True, max_seq_len=64, progress=False)
print("torch" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mobile-ft" / "programs"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[ProgramSpec]:
    """What was asked to be built; all of it becomes PROGRAM."""
    specs: list[ProgramSpec] = []

    def build(spec: ProgramSpec) -> Program:
        specs.append(spec)
        return PROGRAM

    monkeypatch.setattr(cache, "build", build)
    return specs


def test_the_second_time_it_is_there(folder: Path, built: list[ProgramSpec]) -> None:
    assert [cache.cached_program(SPEC) for _ in range(3)] == [PROGRAM] * 3
    assert built == [SPEC] and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"max_seq_len": 128}, False),
        ({"embed_format": "q4_0"}, False),
        ({"units": (dataclasses.replace(UNIT, lora_rank=8),)}, False),
        ({"units": (dataclasses.replace(UNIT, lora_scale=1.0),)}, False),
        ({"units": (dataclasses.replace(UNIT, activation="int8"),)}, False),
        ({"units": (dataclasses.replace(UNIT, linears=(dataclasses.replace(UNIT.linears[0], lora=False),)),)}, False),
        ({"config": dataclasses.replace(CONFIG, vocab_size=251)}, False),
        ({"config": dataclasses.replace(CONFIG, name="other")}, True),
    ],
)
def test_what_decides(folder: Path, built: list[ProgramSpec], change: dict[str, Any], same: bool) -> None:
    cache.cached_program(SPEC)
    cache.cached_program(dataclasses.replace(SPEC, **change))
    assert len(built) == (1 if same else 2)


def test_other_code_builds_again(folder: Path, built: list[ProgramSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    cache.cached_program(SPEC)
    monkeypatch.setattr(cache, "_code", lambda: "other")
    cache.cached_program(SPEC)
    assert len(built) == 2


def summed(rest: bytes) -> bytes:
    """With a checksum that is right."""
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + b"a",
        lambda content: flipped(content, 3),
        lambda content: flipped(content, 100),
        lambda content: flipped(content, len(content) - 1),
        lambda content: b"\xff" + content,
        lambda content: summed(b""),
        lambda content: summed(b"[]\n"),
        lambda content: summed(b"[" * 100_000),
        lambda content: summed(content.split(b"\n")[1].replace(b'{"mlp"', b'[{"mlp"').replace(b"}}", b"}}]")),
    ],
)
def test_what_is_damaged_is_built_again(
    folder: Path, built: list[ProgramSpec], damage: Callable[[bytes], bytes]
) -> None:
    cache.cached_program(SPEC)
    (file,) = folder.iterdir()
    good = file.read_bytes()
    file.write_bytes(damage(good))
    assert cache.cached_program(SPEC) == PROGRAM and len(built) == 2
    assert file.read_bytes() == good


def test_what_belongs_to_another_key_is_built_again(folder: Path, built: list[ProgramSpec]) -> None:
    cache.cached_program(SPEC)
    (mine,) = folder.iterdir()
    cache.cached_program(dataclasses.replace(SPEC, max_seq_len=128))
    (other,) = set(folder.iterdir()) - {mine}
    mine.write_bytes(other.read_bytes())
    cache.cached_program(SPEC)
    assert len(built) == 3


def test_the_oldest_go(folder: Path, built: list[ProgramSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_BYTES", 4 * 1300)
    specs = [dataclasses.replace(SPEC, max_seq_len=64 + i) for i in range(6)]
    for spec in specs:
        cache.cached_program(spec)
        cache.cached_program(specs[0])  # used again and again
    assert len(list(folder.iterdir())) <= 4
    assert built.count(specs[0]) == 1


def test_without_a_folder_it_works(tmp_path: Path, built: list[ProgramSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for home in (str(tmp_path / "file"), "relative", "/proc/none"):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert cache.cached_program(SPEC) == PROGRAM
    assert len(built) == 3


def config_json(folder: Path) -> Path:
    shape = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64}
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 10000.0} | shape))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_exports_at_once_and_after_are_equal_and_need_no_torch(folder: Path, tmp_path: Path) -> None:
    def export(name: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", EXPORT, str(config_json(tmp_path)), str(tmp_path / name)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    at_once = [export("first"), export("second")]
    assert [process.communicate()[0].strip() for process in at_once] == ["True", "True"]
    assert len(list(folder.iterdir())) == 1
    assert export("third").communicate()[0].strip() == "False"
    assert contents(tmp_path / "first") == contents(tmp_path / "second") == contents(tmp_path / "third")
