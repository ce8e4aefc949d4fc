from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("yaml")


def test_draw(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "tools")
    demo: Any = import_module("demo")
    series = [3.0 - i / 100 for i in range(40)]
    training: dict[str, Any] = {"losses": series, "memory_mb": {"rss_mb": series, "anon_mb": series}}
    training |= {"peak_rss_mb": 4, "planned_mb": 5, "budget_mb": 6}
    demo.draw({"training": training, "loss_before": 3.0, "loss_after": 2.6}, tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
