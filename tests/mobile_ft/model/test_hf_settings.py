"""Every setting of a config.json is honoured, with Transformers' logits, or refused by name."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, Gemma3Config, GenerationConfig, PreTrainedConfig

from mobile_ft.errors import UserError
from mobile_ft.export.source.hf_folder import HfFolder
from mobile_ft.model.hf_config import _UNREAD, config_of, read_hf_config, text_settings
from tests.hf_models import FAMILIES, random_model
from tests.reference import reference_logits

TOKENS = torch.from_numpy(np.random.default_rng(0).integers(0, 250, 41))
GONE = ...  # of a setting that is left out
_VISION = {
    **{"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1},
    **{"num_attention_heads": 1, "image_size": 16, "patch_size": 8},
}
BASES: dict[str, PreTrainedConfig] = FAMILIES | {
    "vision": Gemma3Config(
        text_config=FAMILIES["gemma3"].to_dict(), vision_config=_VISION, mm_tokens_per_image=4, image_token_index=249
    )
}


# Settings of Phi-4-mini on the hub that Transformers does not have.
_PUBLISHED_PHI: dict[str, Any] = {
    **{"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False},
    "auto_map": {
        "AutoConfig": "configuration_phi3.Phi3Config",
        "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
        "AutoTokenizer": "Xenova/gpt-4o",
    },
}


def full_config(base: str, tmp_path: Path) -> dict[str, Any]:
    """All that Transformers can write of it."""
    BASES[base].to_json_file(tmp_path / "full.json", use_diff=False)
    return json.loads((tmp_path / "full.json").read_text())


def changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A dot leads into an object."""
    values = copy.deepcopy(values)
    for path, value in changes.items():
        *folders, key = path.split(".")
        inner = values
        for folder in folders:
            inner = inner[folder]
        inner.pop(key, None)
        if value is not GONE:
            inner[key] = value
    return values


def check_logits(values: dict[str, Any], tmp_path: Path) -> None:
    """Of a model that Transformers makes of such a file, in float16, which holds the weights as they are."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    model = random_model(AutoConfig.from_pretrained(folder))
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(values))
    with torch.no_grad():
        theirs = model.double()(TOKENS[None], return_dict=True).logits[0]
        ours = reference_logits(HfFolder(folder, "f16", "f16"), TOKENS)
    assert theirs.std() > 0.1
    assert (ours - theirs).abs().max() < 1e-4


@pytest.mark.parametrize("base", BASES)
def test_all_that_transformers_writes(base: str, tmp_path: Path) -> None:
    check_logits(full_config(base, tmp_path), tmp_path)


_LINEAR = {"rope_type": "linear", "factor": 3.0}
_LLAMA3: dict[str, Any] = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 34}
_LLAMA3 |= {"rope_type": "llama3", "factor": 8.0}
_THETA = {"rope_type": "default", "rope_theta": 100.0}
# What all but Gemma and LFM2 have alike.
_COMMON: list[dict[str, Any]] = [
    {"rms_norm_eps": 0.5},
    {"rms_norm_eps": GONE},
    {"head_dim": 24},
    {"num_key_value_heads": 1},
    {"intermediate_size": 128},
    {"max_position_embeddings": 40},
    {"rope_parameters": _THETA},
    {"rope_parameters": GONE},
    {"rope_parameters": GONE, "rope_theta": 100.0},
    {"rope_parameters": GONE, "rope_theta": 100.0, "rope_scaling": {"rope_type": "default", "type": "linear"}},
    {"rope_theta": 100.0},
    {"tie_word_embeddings": GONE},
    {"bos_token_id": 3, "temperature": 0.1, "do_sample": True, "torch_dtype": "float16", "initializer_range": 0.1},
]
_YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 40}
_DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "factor": 3.0}
_SCALED: list[dict[str, Any]] = [
    {"rope_parameters": _YARN},
    {"rope_parameters": _YARN | {"attention_factor": 0.7, "beta_fast": 8, "beta_slow": 2.0}},
    {"rope_parameters": _YARN | {"mscale": 0.8, "mscale_all_dim": 0.3, "truncate": False}},
    {"rope_parameters": GONE, "rope_scaling": {"type": "yarn", "factor": 3.0}},
    {"rope_parameters": _DYNAMIC},
    {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.5}},
    {"rope_parameters": _LINEAR | {"rope_theta": 100.0}},
    {"rope_parameters": _LLAMA3 | {"rope_theta": 100.0}},
    {"rope_parameters": GONE, "rope_theta": 100.0, "rope_scaling": {"type": "linear", "factor": 3.0}},
    {"rope_parameters": GONE, "rope_scaling": _LLAMA3 | {"type": "yarn"}},
]
_TYPES = ["full_attention", "sliding_attention", "sliding_attention"]
_SLIDING = {"rope_type": "default", "rope_theta": 50.0}
HONOURED: dict[str, list[dict[str, Any]]] = {
    "llama3": [
        *_COMMON,
        {"num_key_value_heads": None},
        *_SCALED,
        {"head_dim": None},
        {"num_key_value_heads": GONE},
        {"tie_word_embeddings": False},
        {"pretraining_tp": 2},
        {"sliding_window": None},
        {"layer_types": ["full_attention"] * 2},
        {"activation": "swiglu", "rope_interleaved": False, "logits_scaling": 1.0},
    ],
    "mistral": [
        *_COMMON,
        {"head_dim": None},
        {"tie_word_embeddings": True},
        {"sliding_window": 5},
        {"sliding_window": GONE},
        {"sliding_window": None},
        *_SCALED,
        *({"sliding_window": None} | scaled for scaled in _SCALED),
        {"layer_types": ["sliding_attention"] * 2},
    ],
    "smollm3": [
        *_COMMON,
        {"num_key_value_heads": None},
        *_SCALED,
        {"no_rope_layers": [0, 1, 1, 0]},
        {"no_rope_layers": [0, 1, 1, 0, 1]},
        {"no_rope_layers": GONE},
        {"no_rope_layers": None, "no_rope_layer_interval": 2},
        {"no_rope_layer_interval": 2},
        {"layer_types": GONE},
        {"sliding_window": 9, "max_window_layers": 1},
        {"tie_word_embeddings": False},
    ],
    "qwen2": [
        *_COMMON,
        {"num_key_value_heads": None},
        *_SCALED,
        {"sliding_window": 9, "max_window_layers": 0},
        {"layer_types": GONE, "sliding_window": 9, "max_window_layers": 0},
        {"use_mrope": False},
        {"tie_word_embeddings": False},
    ],
    "qwen3": [
        *_COMMON,
        {"num_key_value_heads": None},
        *_SCALED,
        {"head_dim": GONE},
        {"sliding_window": 9, "max_window_layers": 0},
        {"layer_types": GONE, "sliding_window": 9, "max_window_layers": 0},
        {"use_sliding_window": True, "layer_types": GONE, "sliding_window": 9, "max_window_layers": 1},
        {"use_sliding_window": True, "layer_types": GONE, "sliding_window": None, "max_window_layers": 0},
        {"use_sliding_window": True, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5},
        {"tie_word_embeddings": False},
    ],
    "lfm2": [
        {"norm_eps": 0.1},
        {"norm_eps": GONE},
        {"head_dim": 24},
        {"num_key_value_heads": 1},
        {"tie_word_embeddings": False},
        {"tie_word_embeddings": GONE, "tie_embedding": False},
        {"conv_L_cache": 4},
        {"layer_types": ["full_attention", "conv", "conv"]},
        {"layer_types": GONE},
        {"layer_types": GONE, "full_attn_idxs": [0, 2]},
        {"full_attn_idxs": [0, 2]},
        {"block_auto_adjust_ff_dim": False},
        {"block_ffn_dim_multiplier": 1.3},
        {"block_multiple_of": 64},
        {"block_multiple_of": GONE},
        {"block_ff_dim": 300},
        {"rope_parameters": _THETA},
        {"rope_parameters": GONE},
        {"rope_parameters": GONE, "rope_theta": 100.0, "theta": 100.0},
        *_SCALED,
        {"block_dim": 64, "conv_dim": 64, "conv_dim_out": 64, "num_heads": 4, "block_norm_eps": 1e-5},
        {"block_use_swiglu": True, "use_pos_enc": True, "block_mlp_init_scale": 2.0, "hidden_act": "silu"},
    ],
    "gemma3": [
        {"rms_norm_eps": 0.5},
        {"num_key_value_heads": 1},
        {"head_dim": 24, "query_pre_attn_scalar": 24},
        {"query_pre_attn_scalar": 16},
        {"query_pre_attn_scalar": GONE},
        {"final_logit_softcapping": 3.0},
        {"rope_parameters.sliding_attention": _LINEAR},
        {"sliding_window": 5},
        {"sliding_window": GONE},
        {"sliding_window_pattern": 3},
        {"layer_types": GONE},
        {"layer_types": GONE, "sliding_window_pattern": 3},
        {"layer_types": GONE, "sliding_window_pattern": GONE},
        {"layer_types": _TYPES},
        {"_sliding_window_pattern": 6},
        {"tie_word_embeddings": False},
        {"hidden_activation": GONE, "hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"},
        {"rope_theta": 50.0},
        {"rope_local_base_freq": 50.0},
        {"rope_parameters": GONE},
        {"rope_parameters": GONE, "rope_theta": 50.0},
        {"rope_parameters": GONE, "rope_local_base_freq": 50.0},
        {"rope_parameters": GONE, "rope_scaling": _LINEAR},
        {"rope_parameters": GONE, "rope_scaling": {**_LLAMA3, "rope_theta": 100.0}},
        {"rope_parameters": {"full_attention": _LINEAR}},
        {"rope_parameters": {"full_attention": _LINEAR}, "rope_theta": 50.0, "rope_local_base_freq": 20.0},
        {"rope_parameters": {"sliding_attention": _SLIDING, "full_attention": None}},
    ],
    "gemma": [{"hidden_act": "gelu"}, {"hidden_activation": None}, {"head_dim": 24}, {"rope_theta": 100.0}],
    "gemma2": [
        {"final_logit_softcapping": None},
        {"attn_logit_softcapping": None},
        {"attn_logit_softcapping": GONE, "final_logit_softcapping": GONE},
        {"query_pre_attn_scalar": GONE},
        {"layer_types": GONE},
        {"sliding_window": 5},
    ],
    "ministral": [{"layer_types": GONE}, {"sliding_window": 5}],
    "ministral3": [
        {"rope_parameters": GONE},
        {"sliding_window": 9},
        {"rope_parameters.mscale": GONE},
        {"rope_parameters.max_position_embeddings": 512},
    ],
    "lfm3": [
        {"rope_parameters": GONE},
        {"layer_types": GONE},
        {"rope_parameters.full_attention.partial_rotary_factor": 0.25},
        {"rope_parameters.full_attention.factor": 2.0},
        {"norm_eps": 0.1},
        {"conv_L_cache": 4},
        {"sliding_window": 5},
    ],
    "granite": [
        {"residual_multiplier": GONE},
        {"embedding_multiplier": 2},
        {"attention_multiplier": GONE},
        {"logits_scaling": 3.0},
        {"rms_norm_eps": 0.1},
        *_SCALED,
    ],
    "granitemoehybrid": [
        {"shared_intermediate_size": 128},
        {"intermediate_size": 128},
        {"layer_types": ["attention"] * 2},
        {"layer_types": GONE, "layers_block_type": ["attention"] * 2},
        {"mamba_d_state": 9},
        {"position_embedding_type": None},
    ],
    "granite4": [
        {"layer_types": ["mamba", "attention", "mamba"]},
        {"mamba_d_head": "auto"},
        {"mamba_n_heads": 4, "mamba_d_head": 32},
        {"mamba_n_groups": 4},
        {"mamba_d_state": 16},
        {"mamba_d_conv": 2},
        {"mamba_chunk_size": 8},
        {"time_step_limit": GONE},
        {"position_embedding_type": "rope"},
    ],
    "granite_swa": [
        {"layer_rope_theta": GONE},
        {"layer_rope_theta": None, "rope_theta": 50.0},
        {"layer_rope_theta": [1e4, 0, 0, 50.0]},
        {"layer_types": GONE},
        {"sliding_window": 5},
    ],
    "hyperclovax": [{"attention_multiplier": None}, {"logits_scaling": 3.0}, {"head_dim": GONE}],
    "phi3": [
        {"rope_parameters": GONE},
        {"rope_parameters": GONE, "partial_rotary_factor": 0.5},
        {"rope_parameters.rope_type": "su"},
        _PUBLISHED_PHI,
        _PUBLISHED_PHI
        | {"auto_map": {"AutoConfig": "microsoft/Phi-3-mini-4k-instruct--configuration_phi3.Phi3Config"}},
        {"rope_parameters.attention_factor": 1.3},
        {"rope_parameters.factor": 5.0},
        {"original_max_position_embeddings": 64},
        {"sliding_window": 9},
        {"sliding_window": 262144},
    ],
    "ernie4_5": [{"head_dim": 24}, {"rope_parameters": GONE}, {"tie_word_embeddings": False}],
    "glm": [
        {"rope_parameters": GONE},
        {"rope_parameters": GONE, "partial_rotary_factor": 0.25},
        {"rope_parameters.partial_rotary_factor": 0.25},
        {"head_dim": 24},
    ],
    "olmo2": [{"num_key_value_heads": None}, *_SCALED],
    "olmo3": [
        {"rope_parameters": GONE},
        {"rope_parameters": GONE, "rope_theta": 100.0},
        {"rope_parameters": GONE, "rope_scaling": _YARN},
        {"layer_types": GONE},
        {"sliding_window": 5},
    ],
    "exaone4": [
        {"sliding_window": None, "layer_types": ["full_attention"] * 2},
        {"layer_types": GONE, "sliding_window_pattern": 2},
        {"sliding_window_pattern": "LLLG"},
        *_SCALED[:1],
    ],
    "hunyuan": [
        {"rope_parameters.alpha": GONE},
        {"rope_parameters": GONE},
        {"rope_parameters.beta_fast": 32, "rope_parameters.mscale_all_dim": 0.0},
    ],
    "arcee": [{"head_dim": 24}, {"num_key_value_heads": None}],
    "vision": [
        {"tie_word_embeddings": False},
        {"tie_word_embeddings": GONE, "text_config.tie_word_embeddings": False},
        {"text_config.tie_word_embeddings": False},
        {"text_config.rms_norm_eps": 0.5},
        {"text_config.sliding_window": 5},
        {"text_config.rope_parameters": GONE, "text_config.rope_scaling": _LINEAR},
        {"text_config.model_type": GONE},
        {"text_config.layer_types": GONE},
        {"text_config.layer_types": GONE, "text_config.sliding_window_pattern": 3},
        {"eos_token_id": [1, 106], "boi_token_index": 240, "initializer_range": 0.3, "unsloth_fixed": True},
    ],
}


def _named(changes: dict[str, Any]) -> str:
    return ",".join(f"{key}={'gone' if value is GONE else value}" for key, value in changes.items())[:60]


@pytest.mark.parametrize(
    ("base", "changes"),
    [pytest.param(b, x, id=f"{b}-{_named(x)}") for b, cases in HONOURED.items() for x in cases],
)
def test_honoured(base: str, changes: dict[str, Any], tmp_path: Path) -> None:
    check_logits(changed(full_config(base, tmp_path), changes), tmp_path)


@pytest.mark.parametrize("base", ["granite4", "falcon_h1", "nemotron_h"])
def test_settings_for_a_bundle_have_no_infinity(base: str, tmp_path: Path) -> None:
    """The runtime's JSON has none; Transformers 4 writes it in time_step_limit."""
    values = full_config(base, tmp_path) | {"time_step_limit": [0.0, math.inf]}
    settings = text_settings(values)
    json.dumps(settings, allow_nan=False)
    assert config_of(settings, "name") == config_of(values, "name")


def test_a_bundle_names_no_code_of_a_repository(tmp_path: Path) -> None:
    """`convert --to hf` writes these settings into a folder without that code."""
    assert "auto_map" not in text_settings(full_config("phi3", tmp_path) | _PUBLISHED_PHI)


# {base: [(changes, what the error says)]}; what all refuse comes first.
_ALL_REFUSE: list[tuple[dict[str, Any], str]] = [
    ({"attention_bias": True}, "attention_bias is True, which is not supported; supported: False"),
    ({"mlp_bias": True}, "mlp_bias is True"),
    ({"attention_dropout": 0.1}, "attention_dropout is 0.1, which is not supported; supported: 0.0 or None"),
    ({"is_causal": False}, "is_causal is False"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ({"layer_types": []}, "layer_types must "),
    ({"layer_types": ["chunked_attention"] * 3}, "layer_types must "),
    ({"tie_word_embeddings": None}, "tie_word_embeddings is None; it must be true or false"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; it must be true or false"),
    ({"residual_scale": 2.0}, "residual_scale is 2.0, which is not a known setting of model_type"),
    ({"per_layer_config": {"0": {"num_attention_heads": 2}}}, "per_layer_config is {"),
    ({"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}, "auto_map is {"),
    ({"original_max_position_embeddings": 17}, "original_max_position_embeddings is 17"),
]
# Of all but Gemma.
_ROPE_REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({"rope_parameters": {"rope_type": name, "factor": 2.0, "rope_theta": 1e4}}, f"rope type '{name}' is not")
        for name in ("su", "ntk", "mrope")
    ),
    ({"rope_parameters": GONE, "rope_scaling": {"type": "su", "factor": 2.0}}, "rope type 'su' is not supported"),
    ({"rope_parameters": _DYNAMIC | {"alpha": 3.0}}, "alpha is 3.0, which rope type 'dynamic' does not have"),
    ({"rope_parameters": _YARN | {"factor": 0}}, "factor is 0; it must be a positive number"),
    ({"rope_parameters": _YARN | {"llama_4_scaling_beta": 0.1}}, "llama_4_scaling_beta is 0.1, which rope type 'yarn'"),
    ({"rope_parameters": _THETA | {"mrope_section": [2, 1, 1]}}, "mrope_section is [2, 1, 1], which rope type 'defa"),
    ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "short_factor must be a list of"),
    ({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 1.5}}, "partial_rotary_factor is 1.5"),
    ({"rope_scaling": _YARN}, "rope_parameters and rope_scaling are both given"),
    ({"rope_scaling": _LINEAR}, "rope_parameters and rope_scaling are both given"),
    ({"rope_parameters": _LINEAR | {"attention_factor": 0.5}}, "attention_factor is 0.5, which rope type 'linear'"),
    ({"rope_parameters": {"factor": 2.0}}, "factor is 2.0, which rope type 'default' does not have"),
    ({"rope_parameters": {"full_attention": _LINEAR}}, "full_attention is {"),
    ({"rope_parameters": _LINEAR | {"partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5 is not supported"),
    ({"rope_parameters": {"rope_type": None}}, "rope type None is not supported"),
    ({"rope_parameters": {"rope_theta": None}}, "rope_theta is None"),
    ({"rope_local_base_freq": 50.0}, "rope_local_base_freq is 50.0, which is not a known setting"),
]
_WINDOWS_REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"use_sliding_window": True, "layer_types": GONE, "max_window_layers": -1}, "max_window_layers is -1"),
    ({"layer_types": ["full_attention", "chunked_attention"], "sliding_window": 9}, "layer_types must "),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu'"),
    ({"hidden_act": None}, "hidden_act is None"),
]
_OF_GEMMA: list[tuple[dict[str, Any], str]] = [
    ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0; it must be a positive number"),
    ({"query_pre_attn_scalar": None}, "query_pre_attn_scalar is None"),
    ({"head_dim": None}, "head_dim"),
    ({"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
    ({"final_logit_softcapping": 0.0}, "final_logit_softcapping is 0.0; it must be a positive number"),
    ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu'; supported: 'gelu_pytorch_tanh'"),
    ({"sliding_window": None}, "sliding_window is None"),
    ({"rope_scaling": _LINEAR}, "rope_parameters and rope_scaling are both given"),
    ({"rope_parameters": GONE, "rope_scaling": {"type": "linear", "factor": 3.0}}, "factor is 3.0, which rope type 'd"),
    ({"rope_parameters": GONE, "rope_scaling": {"rope_type": "su", "factor": 3.0}}, "rope type 'su' is not"),
    ({"rope_parameters": _LINEAR}, "rope_parameters has rope_type 'linear'"),
    ({"rope_parameters.sliding_attention.attention_factor": 2.0}, "attention_factor is 2.0"),
    ({"layer_types": ["full_attention", "full_attention"]}, "layer_types must have one of"),
]
_IN_TEXT: list[tuple[dict[str, Any], str]] = [
    ({f"text_config.{key}": value for key, value in changes.items()}, message)
    for changes, message in [*_ALL_REFUSE, *_OF_GEMMA]
    if "tie_word_embeddings" not in changes
]
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "llama3": [
        *(_ALL_REFUSE + _ROPE_REFUSED),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"sliding_window": 9}, "sliding_window is 9"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "layer_types must have one of"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier is 12.0, which is not supported; supported: 1.0"),
        ({"query_pre_attn_scalar": 16}, "query_pre_attn_scalar is 16"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
        ({"rope_interleaved": True}, "rope_interleaved is True"),
    ],
    "mistral": [
        *(_ALL_REFUSE + _ROPE_REFUSED),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"use_sliding_window": False}, "use_sliding_window is False, which is not a known setting"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types must be ['sliding_attention', 'sliding_attention']"),
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"max_position_embeddings": None}, "max_position_embeddings is None; it must be a positive integer"),
    ],
    "smollm3": [
        *(_ALL_REFUSE + _ROPE_REFUSED),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; supported: 'silu'"),
        ({"layer_types": ["full_attention"] * 3 + ["full_attention_no_rope"]}, "layer_types must be ["),
        ({"no_rope_layers": [1, 0]}, "layer_types must have one of"),
        ({"no_rope_layers": None, "no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
    ],
    "qwen2": [*(_ALL_REFUSE + _ROPE_REFUSED + _WINDOWS_REFUSED), ({"use_mrope": True}, "use_mrope is True")],
    "qwen3": [*(_ALL_REFUSE + _ROPE_REFUSED + _WINDOWS_REFUSED), ({"head_dim": None}, "head_dim is None")],
    "lfm2": [
        *(_ALL_REFUSE + _ROPE_REFUSED),
        ({"conv_bias": True}, "conv_bias is True"),
        ({"theta": 100.0}, "theta is 100.0; it must be rope_theta (1000000.0)"),
        ({"block_dim": 32}, "block_dim is 32; it must be hidden_size (64)"),
        ({"conv_dim": 32}, "conv_dim is 32"),
        ({"num_heads": 2}, "num_heads is 2"),
        ({"rms_norm_eps": 0.5}, "rms_norm_eps is 0.5; it must be norm_eps (1e-05)"),
        ({"norm_eps": None}, "norm_eps is None"),
        ({"block_use_swiglu": False}, "block_use_swiglu is False"),
        ({"use_pos_enc": False}, "use_pos_enc is False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"block_auto_adjust_ff_dim": None}, "block_auto_adjust_ff_dim is None; it must be true or false"),
        ({"block_ffn_dim_multiplier": None}, "block_ffn_dim_multiplier is None"),
        ({"tie_embedding": None}, "tie_word_embeddings is None"),
    ],
    "gemma2": [({"final_logit_softcapping": 0}, "final_logit_softcapping is 0"), ({"query_pre_attn_scalar": -1}, "-1")],
    "ministral3": [({"rope_parameters.max_position_embeddings": 511}, "max_position_embeddings is 511")],
    "lfm3": [
        ({"use_sandwich_norm": False}, "use_sandwich_norm is False"),
        ({"use_attention_gate": False}, "use_attention_gate is False"),
        ({"conv_bias": True}, "conv_bias is True"),
    ],
    "granite": [
        ({"residual_multiplier": 0}, "residual_multiplier is 0; it must be a positive number"),
        ({"embedding_multiplier": "big"}, "embedding_multiplier is 'big'"),
        ({"sliding_window": 9}, "sliding_window is 9, which is not a known setting"),
    ],
    "granitemoehybrid": [
        ({"num_local_experts": 4}, "num_experts_per_tok is 0; it must be a positive integer"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type is 'alibi'; it must be 'rope', 'nope' or null"),
    ],
    "nemotron_h": [
        (
            {"layers_block_type": GONE, "hybrid_override_pattern": -1, "num_hidden_layers": 5},
            "layers_block_type must have linear_attention",
        ),
        ({"layers_block_type": [["mlp"]] * 5}, "layers_block_type must have linear_attention"),
        ({"layers_block_type": ["moe"] * 5}, "layers_block_type must have linear_attention, full_attention or mlp"),
        ({"use_bias": True}, "use_bias is True, which is not supported; supported: False"),
        ({"rms_norm_eps": 0.5}, "rms_norm_eps is 0.5; it must be layer_norm_epsilon (1e-05)"),
    ],
    "qwen3_next": [
        ({"mlp_only_layers": [0]}, "mlp_only_layers is [0], which is not supported; supported: []"),
        ({"shared_expert_intermediate_size": 40}, "the MLP beside experts is 40; it must be a multiple of 32"),
    ],
    "granite4": [
        ({"mamba_n_heads": 4}, "mamba_n_heads 4 x mamba_d_head 16 must be mamba_expand x hidden_size, 128"),
        ({"mamba_conv_bias": False}, "mamba_conv_bias is False; supported: True"),
        ({"time_step_limit": [0.1, 1.0]}, "time_step_limit is [0.1, 1.0]; supported: [0.0, inf]"),
        ({"mamba_n_groups": 3}, "mamba_n_heads (8) must be a multiple of mamba_n_groups (3)"),
        ({"mamba_d_state": 20}, "mamba_d_state is 20; it must be a multiple of 8, at most 256"),
    ],
    "granite_swa": [
        ({"layer_rope_theta": [1.0]}, "layer_rope_theta must have a number for each of 4 layers"),
        ({"layer_rope_theta": [1.0, 1.0, 1.0, -1.0]}, "layer_rope_theta must have a number"),
    ],
    "hyperclovax": [({"use_post_norm": False}, "use_post_norm is False")],
    "phi3": [
        ({"rope_parameters.short_factor": [1.0]}, "short_factor must be a list of 6 numbers"),
        ({"rope_parameters.long_factor": GONE}, "long_factor must be a list of 6 numbers"),
        ({"resid_pdrop": 0.1}, "resid_pdrop is 0.1"),
        ({"full_attn_mod": 2}, "full_attn_mod is 2, which is not supported; supported: 1"),
        ({"interpolate_factor": 4}, "interpolate_factor is 4"),
        ({"lm_head_bias": True}, "lm_head_bias is True"),
        (
            {"auto_map": {"AutoModelForCausalLM": "modeling_phi.MoePhiForCausalLM"}},
            "AutoModelForCausalLM of auto_map is 'modeling_phi.MoePhiForCausalLM'; supported: Phi3Config and Phi3For",
        ),
        ({"auto_map": {"AutoModel": "modeling_phi3.Phi3Model"}}, "AutoModel of auto_map is 'modeling_phi3.Phi3Model'"),
        ({"rope_parameters.partial_rotary_factor": 0.01}, "partial_rotary_factor is 0.01"),
    ],
    "ernie4_5": [({"use_bias": True}, "use_bias is True")],
    "glm": [({"attention_bias": False}, "attention_bias is False, which is not supported; supported: True")],
    "helium": [
        ({"head_dim": 24}, "num_attention_heads x head_dim is 96; it must be hidden_size (64)"),
        ({"num_attention_heads": GONE}, "num_attention_heads is None; it must be a positive integer"),
    ],
    "falcon_h1": [
        ({"mamba_d_ssm": "x"}, "mamba_d_ssm is 'x'; it must be a positive integer"),
        ({"attention_in_multiplier": 1e308}, "has a setting of a wrong type or size (OverflowError("),
    ],
    "gemma4": [
        ({"vocab_size": GONE}, "vocab_size_per_layer_input is 250; it must be vocab_size (None)"),
        ({"per_layer_config": {"1": 3}}, "per_layer_config is {'1': 3}; it must have a head_dim for each layer"),
        ({"layer_types": ["sliding_attention"], "per_layer_config": {}}, "per_layer_config is {}; it must have"),
        ({"layer_types": 3, "per_layer_config": {"1": {}}}, "per_layer_config is {'1': {}}; it must have a head_dim"),
    ],
    "exaone4": [({"layer_types": GONE, "sliding_window_pattern": "LLLG"}, "sliding_window_pattern is 'LLLG', but")],
    "hunyuan": [({"use_qk_norm": False}, "use_qk_norm is False"), ({"use_cla": True}, "use_cla is True")],
    "arcee": [({"hidden_act": "silu"}, "hidden_act is 'silu'; supported: 'relu2'")],
    "gemma3": [*_ALL_REFUSE, *_OF_GEMMA],
    "vision": [
        *_IN_TEXT,
        ({"text_config.quantization_config": {"quant_method": "awq"}}, "quantization_config is {"),
        ({"text_config.model_type": "llama"}, "model_type of text_config is 'llama'; it must be 'gemma3_text'"),
        ({"text_config.model_type": ["llama"]}, "model_type of text_config is ['llama']; it must be 'gemma3_text'"),
        ({"text_config": []}, "text_config is []; it must be an object"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings is None"),
        ({"sliding_window": 9}, "sliding_window is 9, which is not a known setting of model_type 'gemma3'"),
        ({"rope_scaling": _LINEAR}, "rope_scaling is {"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is True"),
    ],
}


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [pytest.param(b, *x, id=f"{b}-{_named(x[0])}") for b, cases in REFUSED.items() for x in cases],
)
def test_refused(base: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(changed(full_config(base, tmp_path), changes)))
    with pytest.raises(UserError) as error:
        read_hf_config(tmp_path / "config.json")
    assert f"{tmp_path / 'config.json'}: " in str(error.value) and message in str(error.value)


def _another(value: Any) -> Any:
    """Another value of that type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 or 1
        case str():
            return f"{value}x"
        case list():
            return value[::-1]
        case dict():
            return {}
    return 1


@pytest.mark.parametrize("base", BASES)
def test_each_setting_changed(base: str, tmp_path: Path) -> None:
    """Whatever Transformers can write, and another value of it: refused by name, or Transformers' logits."""
    values = full_config(base, tmp_path)
    refused, honoured = set(), set()
    for inside, settings in (("", values), ("text_config.", values.get("text_config", {}))):
        for key in settings.keys() - {"model_type", "text_config", "vision_config"}:
            folder = tmp_path / (inside + key)
            folder.mkdir()
            other = changed(values, {inside + key: _another(settings[key])})
            (folder / "config.json").write_text(json.dumps(other))
            try:
                read_hf_config(folder / "config.json")
            except UserError as error:
                said = str(error).removeprefix(str(folder))
                # Other settings that follow from these no longer fit.
                follows = {
                    "num_hidden_layers": ("layer_types must ", "layer_rope_theta must "),
                    "layer_types": ("per_layer_config is ",),
                    "num_local_experts": ("num_experts_per_tok is ",),
                    **dict.fromkeys(("hidden_size", "num_attention_heads"), ("_factor must ",)),
                }
                assert any(text in said for text in (key, *follows.get(key, ())))
                refused.add(inside + key)
                continue
            try:
                check_logits(other, folder)
            except (AssertionError, UserError):
                raise
            except Exception:  # of any kind: Transformers cannot use it
                continue
            honoured.add(inside + key)
    assert len(honoured) > 18 and len(refused) > 3


def test_settings_of_generation() -> None:
    assert set(GenerationConfig._get_default_generation_params()) < set(_UNREAD)
