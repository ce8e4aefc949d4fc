"""Ai2's OLMo 2 and 3, with norms behind the branches only, OLMo Hybrid, and OLMoE. Norms of q and k are over the whole
width."""

from mobile_ft.files.json_values import Values, boolean, positive_int
from mobile_ft.model.families.traits import (
    DEFAULTS,
    DELTA,
    EXPERT_FILES,
    EXPERTS,
    FULL,
    LINEARS,
    NO_ROPE,
    NORMS,
    QK_NORMS,
    SLIDING,
    Family,
    Norms,
    every,
    full_attention,
    without,
)

_NORMS: Norms = {
    "attn": (None, "post_attention_layernorm"),
    "mlp": (None, "post_feedforward_layernorm"),
}
_DEFAULTS = DEFAULTS | {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048}


def _olmo3(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": every(4, layers) if types is None else types}


def _olmoe(values: Values, layers: int) -> Values:
    return full_attention(values, layers) | {"moe_intermediate_size": values.get("intermediate_size")}


def _olmo_hybrid(values: Values, layers: int) -> Values:
    """Every fourth layer has attention, without rotary embedding if rope_theta is null. The norm of a delta net's
    output has an epsilon of its own in Transformers' code."""
    rope = values.get("rope_parameters")
    theta = rope.get("rope_theta", values["rope_theta"]) if isinstance(rope, dict) else values["rope_theta"]
    types = values.get("layer_types")
    if types is None:
        types = [DELTA if layer % 4 != 3 else FULL for layer in range(layers)]
    heads = positive_int(values, "num_attention_heads")
    keys = positive_int(values, "linear_num_key_heads", heads)
    key_dim = positive_int(values, "linear_key_head_dim", int(0.75 * positive_int(values, "hidden_size") / keys))
    usual: Values = {
        "linear_num_key_heads": keys,
        "linear_num_value_heads": positive_int(values, "linear_num_value_heads", heads),
        "linear_key_head_dim": key_dim,
        "linear_value_head_dim": positive_int(values, "linear_value_head_dim", 2 * key_dim),
        "delta_beta_scale": 2.0 if boolean(values, "linear_allow_neg_eigval") else 1.0,
        "delta_norm_eps": 1e-5,
    }
    if theta is not None or not isinstance(types, list):
        return usual | {"layer_types": types}
    without_rope = [NO_ROPE if kind == FULL else kind for kind in types]
    return usual | {"layer_types": without_rope, "rope_parameters": {}, "rope_theta": DEFAULTS["rope_theta"]}


FAMILIES: dict[str, Family] = {
    "olmo2": Family(norms=_NORMS, linears=LINEARS, qk_norms=QK_NORMS, qk_norm_whole=True, defaults=_DEFAULTS),
    "olmoe": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS,
        expert_files=EXPERT_FILES,
        qk_norms=QK_NORMS,
        qk_norm_whole=True,
        usual=_olmoe,
        defaults=DEFAULTS
        | {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "num_experts": 64, "num_experts_per_tok": 8}
        | {"norm_topk_prob": False},
        keys=("num_experts", "num_experts_per_tok", "norm_topk_prob"),
        only={"clip_qkv": (None,)},
        unread=("output_router_logits", "router_aux_loss_coef"),
    ),
    "olmo_hybrid": Family(
        norms=_NORMS | {"delta": ("input_layernorm", None), "delta mlp": ("post_attention_layernorm", None)},
        linears=LINEARS
        | {f"delta_{role}": f"linear_attn.{role}_proj" for role in "qkv"}
        | {
            "delta_gate": "linear_attn.g_proj",
            "delta_beta": "linear_attn.b_proj",
            "delta_decay": "linear_attn.a_proj",
            "delta_out": "linear_attn.o_proj",
        },
        in_files={"input_layernorm": "attention_layer_norm", "post_attention_layernorm": "feedforward_layer_norm"},
        vector_files={"linear_attn.conv1d": tuple(f"linear_attn.{part}_conv1d" for part in "qkv")},
        delta_norm="linear_attn.o_norm",
        qk_norms=QK_NORMS,
        qk_norm_whole=True,
        layers=(FULL, NO_ROPE, DELTA),
        usual=_olmo_hybrid,
        defaults=DEFAULTS
        | {"max_position_embeddings": 65536, "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": True},
        keys=(
            *("linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"),
            *("linear_conv_kernel_dim", "linear_allow_neg_eigval"),
        ),
        unread=("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"),
    ),
    "olmo3": Family(
        norms=_NORMS,
        linears=LINEARS,
        qk_norms=QK_NORMS,
        qk_norm_whole=True,
        layers=(FULL, SLIDING),
        usual=_olmo3,
        rope_by_type=True,
        # Transformers does not apply a file's rope_theta to the layers with a window.
        defaults=_DEFAULTS | {"rope_theta": 500000.0, "rope_local_base_freq": 500000.0, "sliding_window": 4096},
        keys=("sliding_window",),
    ),
}
