"""The layer of faults, compiled once, and what the operations work on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.layer import Operations, operations
from tests.preload import compile_preload


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_preload(Path(__file__).with_name("faults.c"), tmp_path_factory.mktemp("layer"))


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder below which calls are counted; each test empties it."""
    return tmp_path_factory.mktemp("faults").resolve() / "watched"


@pytest.fixture(scope="session")
def python(layer: Path, watched: Path) -> Iterator[Operations]:
    with operations(layer, watched) as process:
        yield process


@pytest.fixture(scope="session")
def talking_bundle(python: Operations, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bundle = tmp_path_factory.mktemp("export") / "talking"
    outcome = python.run("export", {"out": str(bundle), "seed": 0}, -1, "none")
    assert outcome.code == 0, outcome.error
    return bundle


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory, token_file: Callable[..., Path]) -> tuple[Path, Path]:
    """To train on and to validate on."""
    folder = tmp_path_factory.mktemp("tokens")
    return token_file(folder / "train", 250, 32, 12), token_file(folder / "valid", 250, 32, 4, seed=1)
