"""Liquid AI's LFM2 and LFM3: short convolutions between layers of attention."""

from dataclasses import replace
from typing import Any

from mobile_ft.files.json_values import Values, boolean, integers, positive_int, positive_number
from mobile_ft.model.families.traits import CONV, FULL, LINEARS, QK_NORMS, SLIDING, Family, Wrapper

_LINEARS = LINEARS | {
    "o": "self_attn.out_proj",
    "gate": "feed_forward.w1",
    "up": "feed_forward.w3",
    "down": "feed_forward.w2",
    "in": "conv.in_proj",
    "out": "conv.out_proj",
}


def _lfm2(values: Values, layers: int) -> Values:
    """Computes the width of the MLP: two thirds of the setting, rounded up to a multiple, unless adjustment is off."""
    types = values.get("layer_types")
    if types is None and values.get("full_attn_idxs") is not None:
        attention = integers(values, "full_attn_idxs", layers - 1)
        types = [FULL if layer in attention else CONV for layer in range(layers)]
    width = positive_int(values, "intermediate_size" if values.get("block_ff_dim") is None else "block_ff_dim")
    if boolean(values, "block_auto_adjust_ff_dim"):
        multiple = positive_int(values, "block_multiple_of")
        width = int(min(positive_number(values, "block_ffn_dim_multiplier") * int(2 * width / 3), 1 << 32))
        width = -(-width // multiple) * multiple
    return {
        "layer_types": [FULL] * layers if types is None else types,
        "intermediate_size": width,
        "rms_norm_eps": positive_number(values, "norm_eps"),
        "tie_word_embeddings": values.get("tie_embedding", values["tie_word_embeddings"]),
    }


def _lfm3(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    if types is None:
        names = {0: SLIDING, 2: FULL}
        types = [CONV] + [names.get(layer % 4, CONV) for layer in range(1, layers)]
    return {"layer_types": types, "rms_norm_eps": positive_number(values, "norm_eps")}


_VL = Wrapper(
    (
        *("vision_config", "image_token_id", "image_token_index", "video_token_id", "vision_start_token_id"),
        *("vision_end_token_id", "projector_hidden_act", "projector_hidden_size", "projector_bias"),
        *("projector_use_layernorm", "downsample_factor", "encoder_patch_size", "do_image_splitting"),
        *("max_image_tokens", "min_image_tokens", "max_num_patches", "max_pixels_tolerance", "max_tiles", "min_tiles"),
        *("tile_size", "use_thumbnail", "use_image_special_tokens", "vision_feature_layer"),
    )
)
_ROPE_3: dict[str, Any] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    FULL: {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5},
}


def _lfm2_moe(values: Values, layers: int) -> Values:
    if values.get("use_expert_bias") is not True:
        raise ValueError(f"use_expert_bias is {values.get('use_expert_bias')!r}; supported: True")
    types = values.get("layer_types")
    return {
        "layer_types": [FULL] * layers if types is None else types,
        "rms_norm_eps": positive_number(values, "norm_eps"),
        "tie_word_embeddings": values.get("tie_embedding", values["tie_word_embeddings"]),
    }


FAMILIES: dict[str, Family] = {
    "lfm2": Family(
        norms={"attn": ("operator_norm", None), "conv": ("operator_norm", None), "mlp": ("ffn_norm", None)},
        linears=_LINEARS,
        final_norm="model.embedding_norm",
        qk_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
        layers=(FULL, CONV),
        usual=_lfm2,
        inside={"lfm2_vl": _VL},
        defaults={
            "num_key_value_heads": 8,
            "max_position_embeddings": 128000,
            "rope_theta": 1000000.0,
            "tie_word_embeddings": True,
            "conv_L_cache": 3,
            "norm_eps": 1e-5,
            "block_auto_adjust_ff_dim": True,
            "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0,
        },
        keys=(
            *("norm_eps", "tie_embedding", "full_attn_idxs", "conv_L_cache"),
            *("block_ff_dim", "block_auto_adjust_ff_dim", "block_multiple_of", "block_ffn_dim_multiplier"),
        ),
        only={"conv_bias": (False,), "block_use_swiglu": (True,), "use_pos_enc": (True,)},
        repeats={
            **dict.fromkeys(("block_dim", "conv_dim", "conv_dim_out"), "hidden_size"),
            **{"num_heads": "num_attention_heads", "theta": "rope_theta"},
            **{"rms_norm_eps": "norm_eps", "block_norm_eps": "norm_eps"},
        },
        unread=("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"),
    ),
    "lfm3": Family(
        norms={
            **dict.fromkeys(("attn", "conv"), ("operator_norm", "post_operator_norm")),
            "mlp": ("ffn_norm", "post_ffn_norm"),
        },
        linears=_LINEARS | {"o": "self_attn.o_proj", "head_gate": "self_attn.g_proj"},
        in_files={"self_attn.g_proj": "self_attn.gate_proj"},
        final_norm="model.embedding_norm",
        qk_norms=QK_NORMS,
        layers=(FULL, SLIDING, CONV),
        usual=_lfm3,
        rope_by_type=True,
        inside={"lfm3_vl": _VL},
        defaults={
            "num_key_value_heads": 4,
            "head_dim": 128,
            "max_position_embeddings": 128000,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 1000000.0,
            "rope_parameters": _ROPE_3,
            "tie_word_embeddings": True,
            "conv_L_cache": 7,
            "norm_eps": 1e-5,
            "sliding_window": 256,
        },
        keys=("norm_eps", "conv_L_cache", "sliding_window"),
        only={"conv_bias": (False,), "use_sandwich_norm": (True,), "use_attention_gate": (True,)},
        repeats={"rms_norm_eps": "norm_eps"},
    ),
}
FAMILIES["lfm2_moe"] = replace(
    FAMILIES["lfm2"],
    norms=FAMILIES["lfm2"].norms | {"experts": ("ffn_norm", None)},
    linears=_LINEARS
    | {
        "router": "feed_forward.gate",
        "experts_in": "feed_forward.experts.gate_up_proj",
        "experts_out": "feed_forward.experts.down_proj",
    },
    sigmoid_router=True,
    expert_bias="feed_forward.expert_bias",
    expert_files={
        "feed_forward.experts.gate_up_proj": ("feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"),
        "feed_forward.experts.down_proj": ("feed_forward.experts.{}.w2",),
    },
    usual=_lfm2_moe,
    inside={},
    defaults={
        "num_key_value_heads": 8,
        "max_position_embeddings": 128000,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "conv_L_cache": 3,
        "norm_eps": 1e-5,
        "num_dense_layers": 2,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1792,
        "norm_topk_prob": True,
        "use_expert_bias": True,
    },
    keys=(
        *("norm_eps", "tie_embedding", "conv_L_cache", "num_experts", "num_experts_per_tok", "moe_intermediate_size"),
        *("num_dense_layers", "norm_topk_prob", "routed_scaling_factor", "use_expert_bias"),
    ),
    unread=("output_router_logits",),
)
