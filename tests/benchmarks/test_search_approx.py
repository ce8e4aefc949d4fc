"""The search for Approx-BP's coefficients finds the published ones, or better."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "search_approx.py"
    spec = importlib.util.spec_from_file_location("search_approx", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["search_approx"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_the_published_coefficients_are_found(tool: ModuleType, name: str) -> None:
    best = tool.search(tool.ACTIVATIONS[name])
    a, c = tool.PUBLISHED[name]
    assert best.distance <= tool.published_distance(name, 20.0)
    assert best.a == pytest.approx(a, abs=2e-3)
    assert best.c == pytest.approx(c, abs=0.05)
    assert best.a.sum() == pytest.approx(1, abs=1e-9)
    assert best.a @ best.c == pytest.approx(0, abs=1e-9)


def test_more_bits_come_closer(tool: ModuleType) -> None:
    for name in ("softplus", "squared_relu"):
        distances = [tool.search(tool.ACTIVATIONS[name], bits).distance for bits in (1, 2)]
        assert distances[1] < distances[0] / 4


def test_a_is_the_best_for_its_thresholds(tool: ModuleType) -> None:
    """Any other a within the constraints is worse."""
    x = np.linspace(-20, 20, 4001)
    y = tool.ACTIVATIONS["silu"](x)
    c = np.array([-5.0, 0.3, 4.0])
    best = tool.fit(x, y, c, True)
    free = np.linalg.svd(np.stack([np.ones(3), c]))[2][2]  # changes neither sum a nor sum a c
    for step in (-1e-3, 1e-3):
        assert tool.distance_of(x, y, best.a + step * free, c) > best.distance
