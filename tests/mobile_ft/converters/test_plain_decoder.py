"""The targets onnx and executorch take exactly the families whose logits test_convert_onnx and test_convert_executorch
compare. A trait that they lack is refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mobile_ft import UserError
from mobile_ft.api.convert import Target
from mobile_ft.converters.plain_decoder import check_plain
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.hf_config import read_hf_config
from tests import hf_models
from tests.mobile_ft.converters import conftest
from tests.tuned_models import Tuned

# They combine the same traits in other ways.
_LIKE_THEM = {"gemma", "internlm3", "iquestcoder", "ministral", "ministral3"}


def _config(name: str, folder: Path) -> ModelConfig:
    hf_models.FAMILIES[name].to_json_file(folder / "config.json", use_diff=False)
    return read_hf_config(folder / "config.json")


@pytest.mark.parametrize("name", hf_models.FAMILIES)
def test_only_what_is_compared_is_converted(name: str, tmp_path: Path) -> None:
    config = _config(name, tmp_path)
    if name in {*conftest.FAMILIES, *_LIKE_THEM}:
        check_plain(config, "onnx")
    else:
        with pytest.raises(UserError, match=f"to onnx: model_type {config.model_type} has .*, which is not supported"):
            check_plain(config, "onnx")


@pytest.mark.parametrize("setting", ["embedding_multiplier", "residual_multiplier", "logits_scaling"])
def test_each_multiplier_is_refused(setting: str, tmp_path: Path) -> None:
    config = _config("llama3", tmp_path)
    changed: dict[str, Any] = {setting: 2.0}
    with pytest.raises(UserError, match="to executorch: model_type llama has"):
        check_plain(replace(config, **changed), "executorch")


@pytest.mark.parametrize("to", ["onnx", "executorch"])
def test_nothing_is_written(
    tuned_of: Callable[[str], Tuned], converted: Callable[..., Path], tmp_path: Path, to: Target
) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(UserError, match="model_type granite has .*multiplier"):
        converted(tuned_of("granite"), to)
    assert not list(tmp_path.iterdir())
