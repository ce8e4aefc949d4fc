"""`mobile-ft models`, and what is refused by name."""

import json
from pathlib import Path

import pytest

from mobile_ft.cli.main import main
from mobile_ft.export.source.gguf_families import ARCHITECTURES
from mobile_ft.model.families import FAMILIES
from mobile_ft.model.families.refused import MISSING
from mobile_ft.model.hf_config import known_models


def test_lists_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", str(tmp_path / "models.json")]) == 0
    found = json.loads((tmp_path / "models.json").read_text())
    assert [model["name"] for model in found["known"]] == known_models()
    assert found["families"].keys() == FAMILIES.keys() and "mistral3" in found["families"]["ministral3"]
    assert all(0 < model["smallest_budget_mb"] < model["planned_mb"] for model in found["known"])
    assert found["gguf"]["qwen3_5_text"] == ["qwen35"] and found["gguf"]["lfm3"] == []
    assert {name for names in found["gguf"].values() for name in names} == ARCHITECTURES.keys()
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*known_models(), *FAMILIES, *MISSING))


def test_nothing_is_supported_and_refused() -> None:
    supported = {*FAMILIES, *(wrapper for family in FAMILIES.values() for wrapper in family.inside)}
    assert not supported & MISSING.keys()


def test_refused_types_exist() -> None:
    """So that a misspelled name is found."""
    transformers = pytest.importorskip("transformers")
    assert set(MISSING) <= set(transformers.models.auto.configuration_auto.CONFIG_MAPPING)


@pytest.mark.parametrize("model_type", MISSING)
def test_the_error_names_what_is_missing(model_type: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert main(["export", str(tmp_path / "config.json"), "--random-init", "--out", str(tmp_path / "bundle")]) == 1
    assert f"{model_type!r}, which needs {MISSING[model_type]}" in capsys.readouterr().err
