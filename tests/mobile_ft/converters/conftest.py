from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mobile_ft import convert
from tests import hf_models
from tests.tuned_models import Tuned, make_tuned


@pytest.fixture(scope="session")
def tuned_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tuned]:
    """Of a family; exported once for all tests."""
    # llama.cpp expects certain tokens of a model that has phi3 in its name.
    return cache(lambda name: make_tuned(name, tmp_path_factory.mktemp("tuned"), **_CHANGES.get(name, {})))


_OF_GGUF = (
    *("granite", "gemma", "gemma2", "gemma4", "olmo2", "phi3", "qwen3_5", "arcee", "ernie4_5", "exaone4", "ministral3"),
    *("granite4", "granite4_moe", "granitemoe", "olmoe", "qwen3_moe", "lfm2_moe", "falcon_h1", "nemotron_h", "hunyuan"),
    *("mixtral", "granitemoeshared", "qwen2_moe", "qwen3_5_moe", "glm", "glm4"),
)
_ROPE = hf_models.FAMILIES["phi3"].rope_parameters | {"original_max_position_embeddings": 256}
_CHANGES: dict[str, Any] = {
    "gemma2": {"query_pre_attn_scalar": 32},  # the only scale that llama.cpp knows
    "exaone4": {"layer_types": ["full_attention"] * 2, "sliding_window": None},  # as its small model
    "lfm2_moe": {"routed_scaling_factor": 1.0},
    "olmoe": {"num_key_value_heads": 4},
    "granitemoe": {"num_experts_per_tok": 2},  # with 3, rounding to float16 gives one token another expert
    "falcon_h1": {"tie_word_embeddings": False},
    "qwen3_5": {"linear_key_head_dim": 32, "linear_value_head_dim": 32},  # llama.cpp has one size for both
    "qwen2_moe": {"tie_word_embeddings": False},
    "glm": {"head_dim": 16},
    "qwen3_5_moe": {"linear_key_head_dim": 32, "linear_value_head_dim": 32},
    "phi3": {"original_max_position_embeddings": 256, "rope_parameters": _ROPE},  # llama.cpp's shortest context
}
FAMILIES = ("qwen2", "llama3", "mistral", "smollm3", "qwen3", "lfm2", "gemma3")
# Which have all that tells families apart, but for layers without rotary embedding.
_QUICK = ("llama3", "gemma3", "lfm2")


def _marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in _QUICK else pytest.mark.slow) for name in names]


@pytest.fixture(params=_marked(FAMILIES))
def tuned(request: pytest.FixtureRequest, tuned_of: Callable[[str], Tuned]) -> Tuned:
    return tuned_of(request.param)


@pytest.fixture(params=_marked(name for name in (*FAMILIES, *_OF_GGUF) if name != "mistral"))
def tuned_in_gguf(request: pytest.FixtureRequest, tuned_of: Callable[[str], Tuned]) -> Tuned:
    """Of a family that GGUF has words for: it has none for Mistral's sliding window."""
    return tuned_of(request.param)


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Path]:
    def write(tuned: Tuned, to: Any, adapter: Path | None = None, **options: Any) -> Path:
        return convert(tuned.bundle, adapter or tuned.adapter, tmp_path / to, to=to, progress=False, **options).output

    return write
