"""Converts GGUF's settings of each architecture to those of a config.json, so that one reader handles both."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mobile_ft.files.json_values import Values
from mobile_ft.model.config import MOST_LAYERS
from mobile_ft.model.families import CONV, DELTA, FAMILIES, FULL, SLIDING, Family

_MOST = (1 << 31) - 1  # limit of a count
# {tensor of LongRoPE's divisors: its name in config.json}
LONG_FACTORS = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
NOT_ROTATED = np.float32(1e30)  # divisor of the frequency of pairs that are not rotated
_SIGMOID = 2  # llama.cpp's number of a router with sigmoids
_GEMMA_27B_LAYERS = (46, 62)  # of Gemma 2 and of Gemma 3


class Settings:
    """The metadata `<architecture>.<key>`, with checks. All methods raise ValueError for a wrong value."""

    def __init__(self, fields: dict[str, Any], architecture: str) -> None:
        self._fields, self._architecture = fields, architecture

    def get(self, key: str, default: Any = None) -> Any:
        value = self._fields.get(f"{self._architecture}.{key}", default)
        if value is None:
            raise ValueError(f"metadata {self._architecture}.{key} is missing")
        return value

    def has(self, key: str) -> bool:
        return f"{self._architecture}.{key}" in self._fields

    def refuse(self, key: str, reason: str) -> None:
        if self.has(key):
            raise ValueError(f"metadata {self._architecture}.{key}: {reason}")

    def count(self, key: str, default: int | None = None, most: int = _MOST) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise self._wrong(key, value, f"one positive integer, at most {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self._wrong(key, value, "one positive number")
        return float(value)

    def counts(self, key: str, length: int) -> list[int]:
        """Returns a count for each layer, which may be 0. The metadata has a list, or one count for all layers."""
        value = self.get(key)
        values = value if isinstance(value, list) else [value] * length
        if len(values) != length or any(type(x) is not int or not 0 <= x <= _MOST for x in values):
            raise self._wrong(key, value, f"a count, or one for each of {length} layers")
        return values

    def pattern(self, key: str, default: int, length: int) -> list[bool]:
        """Returns a flag for each layer. The metadata has a list, or a number n for all but every n-th layer."""
        value = self.get(key, default)
        if not isinstance(value, list):
            return [(layer + 1) % self.count(key, default) != 0 for layer in range(length)]
        if len(value) != length or any(type(x) is not bool for x in value):
            raise self._wrong(key, value, f"true or false for each of {length} layers")
        return value

    def _wrong(self, key: str, value: Any, right: str) -> ValueError:
        return ValueError(f"metadata {self._architecture}.{key} is {value!r}; it must be {right}")


def _plain(settings: Settings, layers: int) -> Values:
    return {}


def _gemma2(settings: Settings, layers: int) -> Values:
    slides = settings.pattern("attention.sliding_window_pattern", 2, layers)
    return {
        "query_pre_attn_scalar": _query_scalar(settings, layers),
        "attn_logit_softcapping": settings.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": settings.number("final_logit_softcapping", 30.0),
        "sliding_window": settings.count("attention.sliding_window", 4096),
        "layer_types": [SLIDING if sliding else FULL for sliding in slides],
    }


def _query_scalar(settings: Settings, layers: int) -> int:
    of_heads = settings.count("embedding_length") // settings.count("attention.head_count")
    return gemma_query_scalar(layers, of_heads, settings.count("attention.key_length", max(of_heads, 1)))


def gemma_query_scalar(layers: int, of_heads: int, head_dim: int) -> int:
    """Returns the number whose inverse root scales scores; `of_heads` is hidden_size / heads. GGUF has no key for it:
    llama.cpp also recognizes Gemma's 27B models, which have another scale, by their number of layers."""
    return of_heads if layers in _GEMMA_27B_LAYERS else head_dim


def _gemma3(settings: Settings, layers: int) -> Values:
    values: Values = {
        "query_pre_attn_scalar": _query_scalar(settings, layers),
        "rope_local_base_freq": settings.number("rope.freq_base_swa", 10000.0),
        "layer_types": [FULL] * layers,
    }
    if settings.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = settings.get("final_logit_softcapping")
    if settings.has("attention.sliding_window"):
        slides = settings.pattern("attention.sliding_window_pattern", 6, layers)
        types = [SLIDING if sliding else FULL for sliding in slides]
        values |= {"sliding_window": settings.count("attention.sliding_window"), "layer_types": types}
    return values


def _gemma4(settings: Settings, layers: int) -> Values:
    if settings.get("expert_count", 0):
        raise ValueError("experts are not supported")
    kv_heads, widths = (
        settings.counts("attention.head_count_kv", layers),
        settings.counts("feed_forward_length", layers),
    )
    slides = settings.pattern("attention.sliding_window_pattern", 6, layers)
    shared = settings.get("attention.shared_kv_layers", 0)
    if shared != 0:
        shared = settings.count("attention.shared_kv_layers", most=layers)
    if len(set(kv_heads)) > 1:
        raise ValueError("layers with different numbers of key heads are not supported")
    values: Values = {
        "head_dim": settings.count("attention.key_length_swa"),
        "global_head_dim": settings.count("attention.key_length"),
        "num_key_value_heads": kv_heads[0],
        "intermediate_size": widths[0],
        "use_double_wide_mlp": widths[-1] != widths[0],
        "num_kv_shared_layers": shared,
        "hidden_size_per_layer_input": settings.get("embedding_length_per_layer_input", 0),
        "layer_types": [SLIDING if sliding else FULL for sliding in slides],
        "sliding_window": settings.count("attention.sliding_window"),
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": settings.number("rope.freq_base_swa", 1e4)}
        },
    }
    if settings.has("final_logit_softcapping"):
        values["final_logit_softcapping"] = settings.number("final_logit_softcapping")
    if widths != [widths[0] * (1 + (values["use_double_wide_mlp"] and i >= layers - shared)) for i in range(layers)]:
        raise ValueError("the widths of MLPs must be one, and twice that for layers that share keys and values")
    return values


def _lfm2(settings: Settings, layers: int) -> Values:
    settings.refuse("attention.sliding_window", "layers with a sliding window are not supported")
    kv_heads = settings.counts("attention.head_count_kv", layers)
    return {
        "layer_types": [FULL if heads else CONV for heads in kv_heads],
        "num_key_value_heads": max(kv_heads) or None,
        "conv_L_cache": settings.count("shortconv.l_cache"),
        "norm_eps": settings.number("attention.layer_norm_rms_epsilon"),
        "block_auto_adjust_ff_dim": False,
    }


def _granite(settings: Settings, layers: int) -> Values:
    return {
        "attention_multiplier": settings.number("attention.scale"),
        "embedding_multiplier": settings.number("embedding_scale", 1.0),
        "residual_multiplier": settings.number("residual_scale", 1.0),
        "logits_scaling": settings.number("logit_scale"),
    }


def _granitemoe(settings: Settings, layers: int) -> Values:
    return _granite(settings, layers) | {"num_local_experts": settings.count("expert_count")} | _experts(settings)


def _granitemoeshared(settings: Settings, layers: int) -> Values:
    shared = settings.count("expert_shared_feed_forward_length")
    return _granitemoe(settings, layers) | {"shared_intermediate_size": shared}


def _granitehybrid(settings: Settings, layers: int) -> Values:
    """Without experts, the width of the MLP has two keys."""
    kv_heads, width = settings.counts("attention.head_count_kv", layers), settings.count("feed_forward_length")
    shared = settings.count("expert_shared_feed_forward_length", width)
    experts = settings.get("expert_count", 0)
    heads, inner = settings.count("ssm.time_step_rank"), settings.count("ssm.inner_size")
    return _granite(settings, layers) | {
        "layer_types": ["attention" if kv else "linear_attention" for kv in kv_heads],
        "num_key_value_heads": max(kv_heads) or None,
        "position_embedding_type": "rope" if settings.get("rope.scaling.finetuned", True) else "nope",
        "shared_intermediate_size": shared,
        "intermediate_size": width,
        "num_local_experts": experts,
        **(_experts(settings) if experts else {}),
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_expand": inner // settings.count("embedding_length"),
        **_mamba(settings),
    }


def _mamba(settings: Settings) -> Values:
    return {
        "mamba_n_groups": settings.count("ssm.group_count"),
        "mamba_d_state": settings.count("ssm.state_size"),
        "mamba_d_conv": settings.count("ssm.conv_kernel"),
    }


def _experts(settings: Settings) -> Values:
    return {"num_experts_per_tok": settings.count("expert_used_count")}


def _falcon_h1(settings: Settings, layers: int) -> Values:
    """The weights of a file include the multipliers."""
    heads, inner = settings.count("ssm.time_step_rank"), settings.count("ssm.inner_size")
    return {"mamba_n_heads": heads, "mamba_d_head": inner // heads, "mamba_d_ssm": inner} | _mamba(settings)


def _nemotron_h(settings: Settings, layers: int) -> Values:
    kv_heads = settings.counts("attention.head_count_kv", layers)
    widths = settings.counts("feed_forward_length", layers)
    kinds = zip(kv_heads, widths, strict=True)
    heads = settings.count("ssm.time_step_rank")
    return {
        "layers_block_type": ["full_attention" if kv else "mlp" if n else "linear_attention" for kv, n in kinds],
        "num_key_value_heads": max(kv_heads) or None,
        "intermediate_size": max(widths) or None,
        "layer_norm_epsilon": _epsilon(settings),
        "mamba_num_heads": heads,
        "mamba_head_dim": settings.count("ssm.inner_size") // heads,
        "n_groups": settings.count("ssm.group_count"),
        "ssm_state_size": settings.count("ssm.state_size"),
        "conv_kernel": settings.count("ssm.conv_kernel"),
    }


def _epsilon(settings: Settings) -> float:
    """Returns the epsilon of norms. Nemotron-H's key for it is that of LayerNorm."""
    key = "attention.layer_norm_rms_epsilon"
    return settings.number(key if settings.has(key) else "attention.layer_norm_epsilon")


def _olmoe(settings: Settings, layers: int) -> Values:
    experts = {"num_experts": settings.count("expert_count"), "norm_topk_prob": False}
    return _without_windows(settings, layers) | experts | _experts(settings)


def _mixtral(settings: Settings, layers: int) -> Values:
    return {"num_local_experts": settings.count("expert_count"), "sliding_window": None} | _experts(settings)


def _qwen2moe(settings: Settings, layers: int) -> Values:
    return _qwen3moe(settings, layers) | {"norm_topk_prob": False} | _shared_expert(settings)


def _shared_expert(settings: Settings) -> Values:
    return {"shared_expert_intermediate_size": settings.count("expert_shared_feed_forward_length")}


def _qwen3moe(settings: Settings, layers: int) -> Values:
    width = settings.count("expert_feed_forward_length")
    return {
        "num_experts": settings.count("expert_count"),
        "moe_intermediate_size": width,
        "intermediate_size": settings.count("feed_forward_length", width),
        "norm_topk_prob": True,
        **_experts(settings),
    }


def _lfm2moe(settings: Settings, layers: int) -> Values:
    """llama.cpp always divides the weights of a token's experts by their sum."""
    if settings.get("expert_gating_func") != _SIGMOID:
        raise ValueError(f"expert_gating_func is {settings.get('expert_gating_func')!r}; it must be {_SIGMOID}")
    kv_heads, dense = settings.counts("attention.head_count_kv", layers), settings.get("leading_dense_block_count", 0)
    return {
        "layer_types": [FULL if heads else CONV for heads in kv_heads],
        "num_key_value_heads": max(kv_heads) or None,
        "conv_L_cache": settings.count("shortconv.l_cache"),
        "norm_eps": settings.number("attention.layer_norm_rms_epsilon"),
        "num_experts": settings.count("expert_count"),
        "moe_intermediate_size": settings.count("expert_feed_forward_length"),
        "num_dense_layers": dense,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        **_experts(settings),
    }


def _without_windows(settings: Settings, layers: int) -> Values:
    settings.refuse("attention.sliding_window", "layers with a sliding window are not supported")
    return {"layer_types": [FULL] * layers}


def _exaone4(settings: Settings, layers: int) -> Values:
    return _without_windows(settings, layers) | {"sliding_window": None}


def _mistral3(settings: Settings, layers: int) -> Values:
    """Without metadata of scaling there is none, while a config.json without it has YaRN."""
    return {} if _scaling(settings, yarn=True) else {"rope_parameters": {"rope_type": "default"}}


def _phi3(settings: Settings, layers: int) -> Values:
    head_dim = settings.count("embedding_length") // settings.count("attention.head_count")
    values: Values = {"partial_rotary_factor": settings.count("rope.dimension_count", head_dim) / max(head_dim, 1)}
    if settings.get("attention.sliding_window", 0):
        values["sliding_window"] = settings.count("attention.sliding_window")
    if settings.has("rope.scaling.original_context_length"):
        values["original_max_position_embeddings"] = settings.count("rope.scaling.original_context_length")
    return values


def _qwen35(settings: Settings, layers: int) -> Values:
    head_dim, values = settings.count("attention.key_length"), settings.count("ssm.time_step_rank")
    interval = settings.count("full_attention_interval", 4)
    return {
        "layer_types": [FULL if (layer + 1) % interval == 0 else DELTA for layer in range(layers)],
        "num_key_value_heads": max(settings.counts("attention.head_count_kv", layers)) or None,
        "partial_rotary_factor": settings.count("rope.dimension_count", head_dim) / head_dim,
        "linear_num_key_heads": settings.count("ssm.group_count"),
        "linear_num_value_heads": values,
        "linear_key_head_dim": settings.count("ssm.state_size"),
        "linear_value_head_dim": settings.count("ssm.inner_size") // values,
        "linear_conv_kernel_dim": settings.count("ssm.conv_kernel"),
    }


def _qwen35moe(settings: Settings, layers: int) -> Values:
    values = _qwen35(settings, layers) | _qwen3moe(settings, layers) | _shared_expert(settings)
    return {key: value for key, value in values.items() if key != "norm_topk_prob"}  # the family has no setting for it


def _glm(settings: Settings, layers: int) -> Values:
    head_dim = settings.count("embedding_length") // settings.count("attention.head_count")
    head_dim = max(settings.count("attention.key_length", head_dim), 1)
    return {"partial_rotary_factor": settings.count("rope.dimension_count", head_dim) / head_dim}


@dataclass(frozen=True)
class Architecture:
    """The meaning of a `general.architecture`."""

    model_type: str  # a key of FAMILIES
    interleaved: bool = False  # whether the two halves of each head's rows of q and k are interleaved
    special: Callable[[Settings, int], Values] = _plain  # the architecture's own settings, in config.json's form
    windows: bool = False  # whether llama.cpp gives some layers a sliding window
    partial: bool = False  # whether a part of each head may have a rotary embedding; `special` reads it
    yarn: bool = False  # whether it has the settings of YaRN
    proportional: bool = False  # whether the divisors of frequencies say which pairs are rotated
    long_factors: bool = False  # whether it has the divisors of LongRoPE's frequencies as tensors

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]


ARCHITECTURES = {
    "llama": Architecture("llama", interleaved=True),
    "smollm3": Architecture("smollm3", interleaved=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", special=_gemma2, windows=True),
    "gemma3": Architecture("gemma3_text", special=_gemma3, windows=True),
    "gemma4": Architecture("gemma4_text", special=_gemma4, windows=True, proportional=True),
    "qwen35": Architecture("qwen3_5_text", special=_qwen35, partial=True),
    "mistral3": Architecture("ministral3", interleaved=True, special=_mistral3, yarn=True),
    "exaone4": Architecture("exaone4", special=_exaone4),
    "arcee": Architecture("arcee", interleaved=True),
    "ernie4_5": Architecture("ernie4_5"),
    "granite": Architecture("granite", interleaved=True, special=_granite),
    "olmo2": Architecture("olmo2", special=_without_windows),
    "phi3": Architecture("phi3", special=_phi3, partial=True, long_factors=True),
    "lfm2": Architecture("lfm2", special=_lfm2),
    "lfm2moe": Architecture("lfm2_moe", special=_lfm2moe),
    "granitemoe": Architecture("granitemoe", interleaved=True, special=_granitemoe),
    "granitehybrid": Architecture("granitemoehybrid", interleaved=True, special=_granitehybrid),
    "falcon-h1": Architecture("falcon_h1", special=_falcon_h1),
    # Its attention has no rotary embedding, but llama.cpp's converter interleaves its rows all the same.
    "nemotron_h": Architecture("nemotron_h", interleaved=True, special=_nemotron_h, partial=True),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "olmoe": Architecture("olmoe", special=_olmoe),
    "qwen2moe": Architecture("qwen2_moe", special=_qwen2moe),
    "qwen3moe": Architecture("qwen3_moe", special=_qwen3moe),
    "qwen35moe": Architecture("qwen3_5_moe_text", special=_qwen35moe, partial=True),
    # Positions of images have several parts, which are one in a text.
    "qwen2vl": Architecture("qwen2_5_vl_text"),
    "qwen3vl": Architecture("qwen3_vl_text"),
    "chatglm": Architecture("glm", special=_glm, partial=True),
    "glm4": Architecture("glm4", special=_glm, partial=True),
}
# Other model types with the name of an architecture: {architecture: (count that only their metadata has, what it is)}
VARIANTS = {
    "llama": ("expert_count", Architecture("mixtral", interleaved=True, special=_mixtral)),
    "granitemoe": (
        "expert_shared_feed_forward_length",
        Architecture("granitemoeshared", interleaved=True, special=_granitemoeshared),
    ),
}


def architecture_of(settings: Settings, name: str) -> Architecture:
    """Returns the meaning of an architecture in a file with these settings."""
    if name in VARIANTS and settings.get(VARIANTS[name][0], 0):
        return VARIANTS[name][1]
    return ARCHITECTURES[name]


def architecture_names(model_type: str) -> list[str]:
    """Returns the names of the architectures that have models of this type."""
    variants = [(name, variant) for name, (_, variant) in VARIANTS.items()]
    return [name for name, known in [*ARCHITECTURES.items(), *variants] if known.model_type == model_type]


def config_values(
    settings: Settings,
    architecture: Architecture,
    vocab_size: int,
    tied: bool,
    long_factors: dict[str, list[float]],
    rotated: float = 1.0,
) -> Values:
    """Returns the values of the model's config.json. `long_factors` has the short_factor and long_factor of LongRoPE,
    or neither. `rotated` is the share of a head's pairs that are rotated, for a proportional rotary embedding. Raises
    ValueError if the model is not supported."""
    layers = layer_count(settings)
    heads, hidden = settings.count("attention.head_count"), settings.count("embedding_length")
    head_dim = settings.count("attention.key_length", max(hidden // heads, 1))
    if settings.count("rope.dimension_count", head_dim) != head_dim and not architecture.partial:
        raise ValueError("rotary embedding of a part of each head is not supported")
    scaling, attention_factor = _scaling(settings, architecture.yarn), settings.number("rope.scaling.attn_factor", 1.0)
    if long_factors:
        if scaling:
            raise ValueError(f"rope scaling {scaling['rope_type']!r} beside factors of LongRoPE is not supported")
        scaling = {"rope_type": "longrope", **long_factors, "attention_factor": attention_factor}
    elif attention_factor != 1.0:
        raise ValueError(f"rope.scaling.attn_factor is {attention_factor:g}; it must be 1 without factors of LongRoPE")
    special = architecture.special(settings, layers)
    if "num_key_value_heads" not in special:
        special["num_key_value_heads"] = settings.count("attention.head_count_kv", heads)
    if "intermediate_size" not in special:
        special["intermediate_size"] = settings.count("feed_forward_length")
    if architecture.proportional:
        full = {"rope_type": "proportional", "partial_rotary_factor": rotated}
        special["rope_parameters"][FULL] = full | {"rope_theta": settings.number("rope.freq_base", 10000.0)}
        special["vocab_size_per_layer_input"] = vocab_size
    return {
        "model_type": architecture.model_type,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "head_dim": head_dim,
        "vocab_size": vocab_size,
        "rms_norm_eps": _epsilon(settings),
        "rope_theta": settings.number("rope.freq_base", 10000.0),
        "rope_scaling": scaling,
        "max_position_embeddings": settings.count("context_length"),
        "tie_word_embeddings": tied,
        **special,
    }


def _scaling(settings: Settings, yarn: bool) -> Values | None:
    """Returns the scaling of the rotary embedding; its type is linear unless the file has another one, as in llama.cpp.
    Older files have another key for the factor."""
    rope_type = settings.get("rope.scaling.type", "linear")
    if rope_type == "yarn" and yarn:
        return {"rope_type": "yarn"} | _yarn(settings)
    if rope_type not in ("none", "linear"):
        raise ValueError(f"rope scaling {rope_type!r} is not supported; supported: 'none', 'linear'")
    factor = settings.number("rope.scaling.factor", settings.number("rope.scale_linear", 1.0))
    return None if rope_type == "none" or factor == 1 else {"rope_type": "linear", "factor": factor}


def _yarn(settings: Settings) -> Values:
    scaling: Values = {
        "factor": settings.number("rope.scaling.factor"),
        "original_max_position_embeddings": settings.count("rope.scaling.original_context_length"),
        "beta_fast": settings.number("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": settings.number("rope.scaling.yarn_beta_slow", 1.0),
    }
    if settings.has("rope.scaling.yarn_log_multiplier"):
        scaling |= {"mscale": 1.0, "mscale_all_dim": settings.number("rope.scaling.yarn_log_multiplier")}
    if settings.has("attention.temperature_scale"):
        scaling["llama_4_scaling_beta"] = settings.number("attention.temperature_scale")
    return scaling


def layer_count(settings: Settings) -> int:
    """Returns the number of layers. Behind them, a file may have layers that predict later tokens, which Transformers'
    models leave out too."""
    blocks = settings.count("block_count", most=MOST_LAYERS)
    if settings.get("nextn_predict_layers", 0) == 0:
        return blocks
    return blocks - settings.count("nextn_predict_layers", most=blocks - 1)
