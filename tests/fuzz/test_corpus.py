"""What the fuzzers once found, and their seeds, without a fuzzer: each is taken, or refused in one line."""

from pathlib import Path

import pytest

from fuzz.python.harness import FORMATS, check, load
from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_families import ARCHITECTURES
from mobile_ft.export.source.gguf_model import GgufModel
from tests.export.small_gguf import small_gguf_of

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "python"


def test_what_a_finding_is(tmp_path: Path) -> None:
    def run(data: bytes, folder: Path) -> None:
        raise {b"one line": UserError("no"), b"divided": ZeroDivisionError(), b"name": OSError()}[data]

    for fine in (b"one line", b"name"):
        check(run, fine, tmp_path)
    for finding in (b"divided", b"other"):
        with pytest.raises((ZeroDivisionError, KeyError)):
            check(run, finding, tmp_path)


def test_every_folder_is_of_a_format() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(FORMATS)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
@pytest.mark.timeout(10)
def test_findings(path: Path, tmp_path: Path) -> None:
    check(load(path.parent.name).run, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_settings_of_gguf(architecture: str, tmp_path: Path) -> None:
    """Seeds have all of an architecture's own settings: fuzzing changes them, and not only names them missing."""
    (tmp_path / "model.gguf").write_bytes(small_gguf_of(architecture))
    assert GgufModel(tmp_path / "model.gguf").config.model_type == ARCHITECTURES[architecture].model_type


@pytest.mark.parametrize("name", FORMATS)
def test_seeds(name: str, tmp_path: Path) -> None:
    fuzzer = load(name)
    for seed in fuzzer.seeds():
        check(fuzzer.run, seed, tmp_path)
    if name not in ("run_yaml", "adapter"):  # some of whose seeds are refused
        fuzzer.run(fuzzer.seeds()[0], tmp_path)
