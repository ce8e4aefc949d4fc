"""Gemma 1 to 4, and VaultGemma."""

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


def _gemma4(values: Values, layers: int) -> Values:
    """The last layer always has full attention. Transformers writes the head's size by layer, others write one."""
    types = values.get("layer_types") or every(6, layers)
    if types and isinstance(types, list):
        types = [*types[:-1], FULL]
    head_dim = values.get("global_head_dim")
    if (by_layer := values.get("per_layer_config")) is not None:
        full = [str(layer) for layer, kind in enumerate(types) if kind == FULL] if isinstance(types, list) else []
        first = by_layer.get(full[0]) if full and isinstance(by_layer, dict) else None
        head_dim = first.get("head_dim") if isinstance(first, dict) else None
        if by_layer != {layer: {"head_dim": head_dim} for layer in full}:
            raise ValueError(f"per_layer_config is {by_layer!r}; it must have a head_dim for each layer of {FULL!r}")
    return {"layer_types": types, "global_head_dim": head_dim, "attention_multiplier": 1.0}


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

_GEMMA4_VISION = Wrapper(
    (
        *("vision_config", "audio_config", "image_token_id", "video_token_id", "audio_token_id", "boi_token_id"),
        *("eoi_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index", "vision_soft_tokens_per_image"),
    )
)
_ROPE_4: dict[str, Any] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    FULL: {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
}

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
        lr_factor=0.8,
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
    "gemma4_text": Family(
        norms=_SANDWICH | {"per_layer": (None, "post_per_layer_input_norm")},
        linears=LINEARS | {"per_layer_gate": "per_layer_input_gate", "per_layer_out": "per_layer_projection"},
        activation=_GELU,
        activation_key="hidden_activation",
        qk_norms=QK_NORMS,
        v_norm="self_attn.v_norm",
        scaled_embedding=True,
        layer_scale="layer_scalar",
        layers=(FULL, SLIDING),
        usual=_gemma4,
        rope_by_type=True,
        inside={"gemma4": _GEMMA4_VISION},
        defaults=_DEFAULTS
        | {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "max_position_embeddings": 131072,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "rope_parameters": _ROPE_4,
            "sliding_window": 512,
            "global_head_dim": 512,
            "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262144,
            "use_double_wide_mlp": False,
        },
        keys=(
            *("sliding_window", "final_logit_softcapping", "global_head_dim", "per_layer_config"),
            *("num_kv_shared_layers", "hidden_size_per_layer_input", "use_double_wide_mlp"),
        ),
        only={
            "attention_k_eq_v": (False,),
            "enable_moe_block": (False,),
            "num_global_key_value_heads": (None,),
            "use_bidirectional_attention": (None, False, "vision"),
        },
        repeats={"vocab_size_per_layer_input": "vocab_size"},
        unread=("num_experts", "top_k_experts", "moe_intermediate_size"),
    ),
}
