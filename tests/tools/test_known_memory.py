"""The memory that `mobile-ft models` shows is that of plans. Instruction sets and threads change it a little."""

import pytest
from known_memory import memory

from mobile_ft.model.hf_config import known_memory, known_models


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "gemma-3-270m" else pytest.mark.slow) for name in known_models()]
)
def test_is_the_plan(name: str) -> None:
    planned = memory(name)
    assert planned == pytest.approx(known_memory(name), rel=0.05)
