"""Qwen 2, 3 and 3.5, alone and in Qwen's models with vision."""

from dataclasses import replace
from typing import Any

from mobile_ft.files.json_values import Values, positive_int
from mobile_ft.model.families.traits import (
    DEFAULTS,
    DELTA,
    EXPERT_FILES,
    EXPERTS,
    FULL,
    LINEARS,
    NORMS,
    QK_NORMS,
    SHARED,
    SLIDING,
    Family,
    Wrapper,
    full_attention,
    without,
)

_VISION_TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id")
_VISION = Wrapper(("vision_config", *_VISION_TOKENS))
_VISION_2_5 = replace(_VISION, tied_inside=True)  # as files of Transformers 4 have it


def _windows(values: Values, layers: int) -> Values:
    """With `use_sliding_window`, the layers from `max_window_layers` on have a window."""
    if not values.get("use_sliding_window"):
        return full_attention(values, layers)
    if values.get("layer_types") is not None:
        return {}
    first = 0 if values.get("max_window_layers") == 0 else positive_int(values, "max_window_layers", 28)
    window = values.get("sliding_window", 4096)
    return {
        "layer_types": [SLIDING if layer >= first and window is not None else FULL for layer in range(layers)],
        "sliding_window": window,
    }


def _delta_layers(values: Values, layers: int) -> Values:
    """Every `full_attention_interval`-th layer has attention, and the others have a gated delta net."""
    types = values.get("layer_types")
    if types is None:
        interval = positive_int(values, "full_attention_interval")
        types = [DELTA if (layer + 1) % interval else FULL for layer in range(layers)]
    return {"layer_types": types}


def _moe_delta(values: Values, layers: int) -> Values:
    """Qwen3.5 divides the weights of a token's experts by their sum, and has no setting for it."""
    return {
        **_moe(values, layers),
        **_delta_layers(values, layers),
        "norm_topk_prob": values.get("norm_topk_prob", True),
        "intermediate_size": values.get("intermediate_size", values["moe_intermediate_size"]),
    }


def _moe(values: Values, layers: int) -> Values:
    """Transformers writes the number of experts under another name than published files."""
    number = values["num_experts"] if values.get("num_local_experts") is None else values["num_local_experts"]
    return full_attention(values, layers) | {"num_experts": number}


_DELTA_KEYS = (
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
    *("linear_conv_kernel_dim", "full_attention_interval"),
)

_DELTA_DEFAULTS = DEFAULTS | {
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "partial_rotary_factor": 0.25,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
# Qwen3.5's names of a delta net's linear layers.
_DELTA = {
    "delta_qkv": "linear_attn.in_proj_qkv",
    "delta_gate": "linear_attn.in_proj_z",
    "delta_beta": "linear_attn.in_proj_b",
    "delta_decay": "linear_attn.in_proj_a",
    "delta_out": "linear_attn.out_proj",
}
_MOE_KEYS = ("num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size")
_MOE_ONLY: dict[str, tuple[Any, ...]] = {
    "decoder_sparse_step": (1,),
    "mlp_only_layers": ([], None),
    "use_sliding_window": (False,),
}
# The settings of windows have no effect without them. An MLP in place of experts would have an intermediate_size.
_MOE_UNREAD = ("output_router_logits", "router_aux_loss_coef", "sliding_window", "max_window_layers")
# The layers that predict later tokens are not part of Transformers' model either.
_LATER_TOKENS = ("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype")

FAMILIES: dict[str, Family] = {
    "qwen2": Family(
        norms=NORMS,
        linears=LINEARS,
        qkv_bias=True,
        layers=(FULL, SLIDING),
        usual=_windows,
        defaults=DEFAULTS | {"num_key_value_heads": 32, "max_position_embeddings": 32768},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
        only={"use_mrope": (False,)},
    ),
    "qwen3": Family(
        norms=NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        layers=(FULL, SLIDING),
        usual=_windows,
        defaults=DEFAULTS | {"head_dim": 128, "num_key_value_heads": 32, "max_position_embeddings": 32768},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
    ),
    "qwen3_moe": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS,
        expert_files=EXPERT_FILES,
        qk_norms=QK_NORMS,
        usual=_moe,
        defaults=DEFAULTS
        | {"head_dim": 128, "num_key_value_heads": 4, "max_position_embeddings": 32768, "num_experts": 128}
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": False},
        keys=(*_MOE_KEYS, "norm_topk_prob"),
        only=_MOE_ONLY,
        unread=_MOE_UNREAD,
    ),
    "qwen2_moe": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS | SHARED,
        expert_files=EXPERT_FILES,
        qkv_bias=True,
        usual=_moe,
        defaults=DEFAULTS
        | {"num_key_value_heads": 16, "max_position_embeddings": 32768, "num_experts": 60, "num_experts_per_tok": 4}
        | {"moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "norm_topk_prob": False},
        keys=(*_MOE_KEYS, "shared_expert_intermediate_size", "norm_topk_prob"),
        only=_MOE_ONLY | {"qkv_bias": (True,)},
        unread=_MOE_UNREAD,
    ),
    "qwen3_next": Family(
        norms=NORMS | {"delta": NORMS["attn"], "experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down")
        | EXPERTS
        | SHARED
        | {
            "delta_qkvz": "linear_attn.in_proj_qkvz",
            "delta_ba": "linear_attn.in_proj_ba",
            "delta_out": "linear_attn.out_proj",
        },
        frozen=("shared_gate", "shared_up", "shared_down"),  # PEFT takes their names for those of experts
        expert_files=EXPERT_FILES,
        qk_norms=QK_NORMS,
        q_gate=True,
        norm_offset=1.0,
        plain_norms=("linear_attn.norm",),
        layers=(FULL, DELTA),
        usual=_moe_delta,
        defaults=_DELTA_DEFAULTS
        | {"num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512}
        | {"shared_expert_intermediate_size": 512, "norm_topk_prob": True},
        keys=(*_DELTA_KEYS, "partial_rotary_factor", *_MOE_KEYS, "shared_expert_intermediate_size", "norm_topk_prob"),
        only=_MOE_ONLY,
        unread=_MOE_UNREAD,
    ),
    # The text models of Qwen2.5-VL and Qwen3-VL. The rotary sections of text are those of ordinary rotary embedding.
    "qwen2_5_vl_text": Family(
        norms=NORMS,
        linears=LINEARS,
        qkv_bias=True,
        rope_keys=("mrope_section",),
        layers=(FULL, SLIDING),
        usual=_windows,
        inside={"qwen2_5_vl": _VISION_2_5},
        defaults=DEFAULTS
        | {"num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0},
        keys=("use_sliding_window", "sliding_window", "max_window_layers"),
        unread=_VISION_TOKENS,
    ),
    "qwen3_vl_text": Family(
        norms=NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        rope_keys=("mrope_section",),
        inside={"qwen3_vl": _VISION},
        defaults=DEFAULTS
        | {
            "head_dim": 128,
            "num_key_value_heads": 32,
            "max_position_embeddings": 128000,
            "rope_theta": 500000.0,
        },
    ),
    "qwen3_5_text": Family(
        norms=NORMS | {"delta": NORMS["attn"]},
        linears=LINEARS | _DELTA,
        qk_norms=QK_NORMS,
        q_gate=True,
        norm_offset=1.0,
        plain_norms=("linear_attn.norm",),
        layers=(FULL, DELTA),
        usual=_delta_layers,
        rope_keys=("mrope_section",),
        inside={"qwen3_5": _VISION},
        defaults=_DELTA_DEFAULTS,
        keys=(*_DELTA_KEYS, "partial_rotary_factor"),
        only={"attn_output_gate": (True,)},
        unread=_LATER_TOKENS,
    ),
    "qwen3_5_moe_text": Family(
        norms=NORMS | {"delta": NORMS["attn"], "experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS | SHARED | _DELTA,
        expert_files=EXPERT_FILES,
        qk_norms=QK_NORMS,
        q_gate=True,
        norm_offset=1.0,
        plain_norms=("linear_attn.norm",),
        layers=(FULL, DELTA),
        usual=_moe_delta,
        rope_keys=("mrope_section",),
        inside={"qwen3_5_moe": _VISION},
        defaults=_DELTA_DEFAULTS
        | {"num_key_value_heads": 2, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512}
        | {"shared_expert_intermediate_size": 512},
        keys=(*_DELTA_KEYS, "partial_rotary_factor", *_MOE_KEYS, "shared_expert_intermediate_size"),
        only={"attn_output_gate": (True,)},
        unread=(*_LATER_TOKENS, *_MOE_UNREAD),
    ),
}
