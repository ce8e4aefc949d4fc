"""What the tests of tools/phone_check.py share: a small bundle, and checks that are as quick as possible."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.small_bundle import TalkingModel, write_small_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_bundle(tmp_path_factory.mktemp("bundle") / "small", TalkingModel)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """As quick as its checks allow."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    module = importlib.import_module("phone_check")
    # Steps of milliseconds: enough of them that `kill` comes before the last.
    for name, value in {"SAMPLE_SECONDS": 0.05, "MINUTE": 0.5, "KILL_STEPS": 50, "MEMORY_STEPS": 100}.items():
        monkeypatch.setattr(module, name, value)
    yield module
