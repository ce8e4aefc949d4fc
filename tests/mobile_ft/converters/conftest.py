from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mobile_ft import convert
from tests.tuned_models import Tuned, make_tuned


@pytest.fixture(scope="session")
def tuned_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tuned]:
    """Of a family; exported once for all tests."""
    return cache(lambda name: make_tuned(name, tmp_path_factory.mktemp(name)))


FAMILIES = ("qwen2", "llama3", "mistral", "smollm3", "qwen3", "lfm2", "gemma3")
# Which have all that tells families apart, but for layers without rotary embedding.
_QUICK = ("llama3", "gemma3", "lfm2")


def _marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in _QUICK else pytest.mark.slow) for name in names]


@pytest.fixture(params=_marked(FAMILIES))
def tuned(request: pytest.FixtureRequest, tuned_of: Callable[[str], Tuned]) -> Tuned:
    return tuned_of(request.param)


@pytest.fixture(params=_marked(name for name in FAMILIES if name != "mistral"))
def tuned_in_gguf(request: pytest.FixtureRequest, tuned_of: Callable[[str], Tuned]) -> Tuned:
    """Of a family that GGUF has words for: it has none for Mistral's sliding window."""
    return tuned_of(request.param)


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    def write(tuned: Tuned, to: Any, adapter: Path | None = None, **options: Any) -> Path:
        return convert(tuned.bundle, adapter or tuned.adapter, tmp_path / to, to=to, progress=False, **options).output

    return write
