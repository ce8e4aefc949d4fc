"""Gemma 1, 2 and 3, and VaultGemma."""

from dataclasses import replace
from typing import Any

from mobile_ft.files.json_values import Values, positive_int, positive_number
from mobile_ft.model.families.traits import (
    FULL,
    LINEARS,
    NORMS,
    QK_NORMS,
    SLIDING,
    Family,
    Norms,
    Wrapper,
    every,
    full_attention,
)

_SANDWICH: Norms = {
    "attn": ("input_layernorm", "post_attention_layernorm"),
    "mlp": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
}
_GELU = "gelu_pytorch_tanh"


def _query_scale(values: Values) -> Values:
    return {"attention_multiplier": positive_number(values, "query_pre_attn_scalar") ** -0.5}


def _gemma1(values: Values, layers: int) -> Values:
    """Published files say "gelu" and mean its tanh form, as Transformers reads them."""
    if values.get("hidden_act") == "gelu":
        values = values | {"hidden_act": _GELU}
    return full_attention(values, layers) | {"hidden_act": values.get("hidden_act")}


def _gemma2(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": every(2, layers) if types is None else types} | _query_scale(values)


def _gemma3(values: Values, layers: int) -> Values:
    if values.get("layer_types") is not None:
        return _query_scale(values)
    return {"layer_types": every(positive_int(values, "sliding_window_pattern"), layers)} | _query_scale(values)


# Published files leave most of them out.
_DEFAULTS: dict[str, Any] = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "head_dim": 256}
_GEMMA2 = _DEFAULTS | {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "max_position_embeddings": 8192,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
_GEMMA2_KEYS = ("query_pre_attn_scalar", "sliding_window", "final_logit_softcapping", "attn_logit_softcapping")

_GEMMA3_VISION = Wrapper(
    (
        *("vision_config", "mm_tokens_per_image", "image_token_index", "image_token_id"),
        *("boi_token_index", "boi_token_id", "eoi_token_index", "eoi_token_id"),
    )
)

_GEMMA2_FAMILY = Family(
    norms=_SANDWICH,
    linears=LINEARS,
    activation=_GELU,
    activation_key="hidden_activation",
    scaled_embedding=True,
    norm_offset=1.0,
    layers=(FULL, SLIDING),
    usual=_gemma2,
    defaults=_GEMMA2,
    keys=_GEMMA2_KEYS,
    only={"hidden_act": (_GELU,)},
)
_VAULT_NORMS: Norms = {"attn": ("input_layernorm", None), "mlp": ("pre_feedforward_layernorm", None)}

FAMILIES: dict[str, Family] = {
    "gemma": Family(
        norms=NORMS,
        linears=LINEARS,
        activation=_GELU,
        scaled_embedding=True,
        norm_offset=1.0,
        usual=_gemma1,
        defaults=_DEFAULTS | {"num_key_value_heads": 16, "max_position_embeddings": 8192, "hidden_act": _GELU},
        only={"hidden_activation": (None, _GELU)},
    ),
    "gemma2": _GEMMA2_FAMILY,
    "vaultgemma": replace(_GEMMA2_FAMILY, norms=_VAULT_NORMS),
    "gemma3_text": Family(
        norms=_SANDWICH,
        linears=LINEARS,
        activation=_GELU,
        activation_key="hidden_activation",
        qk_norms=QK_NORMS,
        scaled_embedding=True,
        norm_offset=1.0,
        layers=(FULL, SLIDING),
        usual=_gemma3,
        rope_by_type=True,
        vision_tokens=True,
        inside={"gemma3": _GEMMA3_VISION},
        defaults=_DEFAULTS
        | {
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 131072,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
        },
        keys=(
            *("query_pre_attn_scalar", "rope_local_base_freq", "sliding_window", "sliding_window_pattern"),
            "final_logit_softcapping",
        ),
        only={"hidden_act": (_GELU,)},
        unread=("_sliding_window_pattern",),
    ),
}
