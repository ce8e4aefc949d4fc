"""Reading config.json: the well-known models against Transformers, and clear errors for what is not supported."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.errors import UserError
from mobile_ft.model.families import CONV, FULL, MAMBA, NO_ROPE, SLIDING
from mobile_ft.model.hf_config import known_config, known_models, read_hf_config
from mobile_ft.model.rope import frequencies
from mobile_ft.model.shapes import base_parameters

# Hugging Face's count, of the text model alone where there is more.
PARAMETERS = {
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "lfm2-350m": 354_483_968,
    "lfm2-1.2b": 1_170_340_608,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen3-0.6b": 596_049_920,
    "smollm3-3b": 3_075_098_624,
    "gemma-4-e2b": 4_628_569_344,
    "gemma-4-e4b": 7_463_013_376,
    "falcon-h1-0.5b": 521_411_104,
    "granite-3.0-1b-a400m": 1_334_628_352,
    "lfm2-8b-a1b": 8_339_929_856,
    "granite-4.0-1b": 1_631_750_144,
    "granite-4.0-h-1b": 1_461_538_368,
    "granite-4.0-h-micro": 3_191_396_096,
    "lfm3-1.7b": 1_728_801_536,
    "ministral-3-3b": 3_429_006_336,
    "phi-4-mini": 3_836_021_760,
    "qwen3.5-0.8b": 752_393_024,
    "qwen3.5-2b": 1_881_825_088,
    "qwen3.5-4b": 4_205_751_296,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_known_models_are_what_transformers_makes_of_them(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    path = known_config(name)
    assert path is not None
    config = read_hf_config(path)
    values = json.loads(path.read_text())
    theirs = transformers.AutoConfig.for_model(**values).get_text_config()
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(theirs)
    assert config.tie_word_embeddings == (model.lm_head.weight is model.model.embed_tokens.weight)
    assert base_parameters(config) == sum(p.numel() for p in model.parameters()) == PARAMETERS[name]
    for key in ("num_attention_heads", "num_key_value_heads", "max_position_embeddings"):
        assert getattr(config, key) == getattr(theirs, key)
    eps = "norm_eps" if config.model_type in ("lfm2", "lfm2_moe") else "rms_norm_eps"
    assert config.rms_norm_eps == getattr(theirs, eps)
    if MAMBA in config.layer_types:  # none of its layers has a rotary embedding
        assert all(config.rope(layer) is None for layer in range(config.num_hidden_layers))
        return
    rotary = model.model.pos_emb if config.model_type == "lfm2_moe" else model.model.rotary_emb
    rotary = type(rotary)(theirs)  # on a real device
    if NO_ROPE in config.layer_types:
        assert [t != NO_ROPE for t in config.layer_types] == list(map(bool, theirs.no_rope_layers))
    elif config.layer_types:
        assert list(config.layer_types) == theirs.layer_types
    if SLIDING not in config.layer_types:
        found = frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        np.testing.assert_allclose(found, rotary.inv_freq.numpy(), rtol=1e-6)
        return
    assert config.sliding_window == theirs.sliding_window
    for kind in (FULL, SLIDING):
        layer = config.layer_types.index(kind)
        rope = config.rope(layer)
        assert rope is not None
        expected = getattr(rotary, f"{kind}_inv_freq").numpy()
        np.testing.assert_allclose(frequencies(config.head_dim_of(layer), *rope), expected, rtol=1e-6)


def test_known_names() -> None:
    assert known_models() == sorted(PARAMETERS)
    assert known_config("gpt2") is None
    assert known_config("../configs/gemma-3-1b") is None


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    """Reads the config of a known model after some changes; None removes a field."""

    def read(name: str, **changes: Any) -> Any:
        path = known_config(name)
        assert path is not None
        values = json.loads(path.read_text())
        text = values.get("text_config", values)
        text.update(changes)
        for key in [key for key in changes if changes[key] is None]:
            text.pop(key, None)
        target = tmp_path / "config.json"
        target.write_text(json.dumps(values))
        return read_hf_config(target)

    return read


def test_what_gemma_leaves_out_is_what_transformers_takes(read: Callable[..., Any]) -> None:
    silent = dict.fromkeys(
        [
            *("hidden_activation", "head_dim", "query_pre_attn_scalar", "vocab_size", "num_attention_heads"),
            *("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_local_base_freq"),
            *("sliding_window_pattern", "tie_word_embeddings"),
        ]
    )
    path = known_config("gemma-3-4b")
    assert path is not None
    whole = read_hf_config(path)
    assert dataclasses.replace(read("gemma-3-4b", **silent), name=whole.name) == whole


def test_names_of_transformers_5(read: Callable[..., Any]) -> None:
    parameters = {
        FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
        SLIDING: {"rope_type": "default", "rope_theta": 2e4},
    }
    gemma = read("gemma-3-1b", rope_parameters=parameters, layer_types=[FULL] * 25 + [SLIDING])
    assert (gemma.rope_theta, gemma.rope_local_base_freq) == (5e5, 2e4)
    assert gemma.rope_scaling == {"rope_type": "linear", "factor": 4.0}
    assert [gemma.layer_type(layer) == SLIDING for layer in (0, 24, 25)] == [False, False, True]
    qwen = read("qwen2.5-0.5b", rope_parameters={"rope_type": "default", "rope_theta": 3e4}, rope_theta=None)
    assert (qwen.rope_theta, qwen.rope_scaling) == (3e4, None)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "llama-3.2-1b",
            {"model_type": "mamba"},
            "model_type is 'mamba', which needs Mamba-1 layers; `mobile-ft models` lists what is supported",
        ),
        ("llama-3.2-1b", {"attention_bias": True}, "attention_bias is True, which is not supported"),
        ("llama-3.2-1b", {"rope_scaling": {"rope_type": "su", "factor": 2}}, "rope type 'su' is not supported"),
        (
            "llama-3.2-1b",
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "factor is 0; it must be a positive number",
        ),
        ("llama-3.2-1b", {"rope_scaling": LLAMA3}, "original_max_position_embeddings is None"),
        ("llama-3.2-1b", {"rope_scaling": "llama3"}, "rope_scaling is 'llama3'; it must be an object"),
        ("llama-3.2-1b", {"rope_scaling": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ("llama-3.2-1b", {"rms_norm_eps": "small"}, "rms_norm_eps is 'small'; it must be a positive number"),
        (
            "qwen2.5-0.5b",
            {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 0},
            "sliding_window is 0",
        ),
        ("qwen2.5-0.5b", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu'"),
        ("gemma-3-1b", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0; it must be a positive number"),
        ("gemma-3-1b", {"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0; it must be a positive"),
        ("gemma-3-1b", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
        ("gemma-3-1b", {"hidden_activation": "gelu"}, "hidden_activation is 'gelu'; supported: 'gelu_pytorch_tanh'"),
        ("gemma-3-1b", {"layer_types": ["full_attention"]}, "for each of 26 layers"),
        ("gemma-3-1b", {"layer_types": ["linear_attention"] * 26}, "layer_types must have one of"),
        ("llama-3.2-1b", {"model_type": ["llama"]}, "model_type is ['llama']; it must be a string"),
        ("llama-3.2-1b", {"rope_scaling": {"rope_type": {}}}, "rope type {} is not supported"),
        ("llama-3.2-1b", {"rms_norm_eps": 10**400}, "it must be a positive number"),
        (
            "llama-3.2-1b",
            {"num_hidden_layers": 2**27},
            "it must be a positive integer, at most 1000",
        ),
        (
            "gemma-3-1b",
            {"num_hidden_layers": 2**27},
            "it must be a positive integer, at most 1000",
        ),
        ("llama-3.2-1b", {"vocab_size": 2**30}, "gives a matrix of 2048 x 1073741824; it must have at most"),
        (
            "llama-3.2-1b",
            {"intermediate_size": 2**31},
            "intermediate_size is 2147483648; it must be a",
        ),
        ("llama-3.2-1b", {"max_position_embeddings": 2**70}, "it must be a positive integer, at most 2147483647"),
        ("gemma-3-4b", {"sliding_window": 0}, "sliding_window is 0; it must be a positive integer"),
        ("lfm2-350m", {"conv_bias": True}, "conv_bias is True, which is not supported"),
        ("lfm2-350m", {"conv_L_cache": 1}, "conv_L_cache is 1; it must be from 2 to 16"),
        ("lfm2-350m", {"conv_L_cache": 17}, "conv_L_cache is 17; it must be a positive integer, at most 16"),
        ("lfm2-350m", {"full_attn_idxs": [2, 16]}, "full_attn_idxs must be a list of integers from 0 to 15"),
        ("lfm2-350m", {"block_ffn_dim_multiplier": 1e300}, "intermediate_size is 4294967296; it must be a positive"),
        ("lfm2-350m", {"layer_types": ["sliding_attention"] * 16}, "must have one of full_attention, conv for each"),
        ("smollm3-3b", {"no_rope_layers": [2] * 36}, "no_rope_layers must be a list of integers from 0 to 1"),
        ("smollm3-3b", {"no_rope_layers": [1] * 35}, "for each of 36 layers"),
        ("smollm3-3b", {"use_sliding_window": True}, "use_sliding_window is True, which is not supported"),
    ],
)
def test_what_is_not_supported(read: Callable[..., Any], name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        read(name, **changes)
    assert message in str(error.value)
    assert "config.json: " in str(error.value)


def test_gemma_without_a_text_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "gemma3"}')
    with pytest.raises(UserError, match="text_config is None"):
        read_hf_config(path)


def test_how_wide_an_lfm2_is(read: Callable[..., Any]) -> None:
    """Against Transformers' MLP."""
    modeling = pytest.importorskip("transformers.models.lfm2.modeling_lfm2")
    from transformers import Lfm2Config

    for changes in (
        {},
        {"block_ff_dim": 7000},
        {"block_ffn_dim_multiplier": 1.3},
        {"block_multiple_of": 32},
        {"block_auto_adjust_ff_dim": False},
        {"block_ff_dim": None, "intermediate_size": 5000},
    ):
        config = read("lfm2-350m", **changes)
        path = known_config("lfm2-350m")
        assert path is not None
        values = json.loads(path.read_text()) | changes
        theirs = Lfm2Config(**{key: value for key, value in values.items() if value is not None})
        assert config.intermediate_size == modeling.Lfm2MLP(theirs).w1.out_features
        assert config.layer_type(2) == FULL and config.layer_type(0) == CONV


def test_mistral_slides_unless_it_says_null(tmp_path: Path) -> None:
    values = {"model_type": "mistral", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 8, "vocab_size": 250}
    for given, window in (({}, 4096), ({"sliding_window": 9}, 9), ({"sliding_window": None}, 0)):
        (tmp_path / "config.json").write_text(json.dumps(values | given))
        config = read_hf_config(tmp_path / "config.json")
        assert config.sliding_window == window and config.layer_types == ((SLIDING,) * 2 if window else ())
