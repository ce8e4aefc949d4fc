"""Llama, Mistral, SmolLM3, and families that differ from Llama in a few traits."""

from mobile_ft.files.json_values import Values, boolean, integers, positive_int, positive_number
from mobile_ft.model.families.traits import (
    DEFAULTS,
    EXPERTS,
    FULL,
    LINEARS,
    NO_ROPE,
    NORMS,
    QK_NORMS,
    SLIDING,
    Family,
    Wrapper,
    full_attention,
    implied_types,
    without,
)

_PIXTRAL = Wrapper(
    (
        *("vision_config", "image_token_index", "image_token_id", "projector_hidden_act", "spatial_merge_size"),
        *("vision_feature_layer", "vision_feature_select_strategy", "multimodal_projector_bias", "image_seq_length"),
    ),
    tied_inside=True,
)
_SMOLVLM = Wrapper(("vision_config", "image_token_id", "scale_factor", "_pad_token_id"), modules="model.text_model")


def one_window(values: Values, layers: int) -> Values:
    """All layers have the same window; later models have null. A window of the whole context is none."""
    window = values["sliding_window"]
    whole = window is None or (isinstance(window, int) and window >= positive_int(values, "max_position_embeddings"))
    return implied_types([FULL if whole else SLIDING] * layers, values)


def _mixtral(values: Values, layers: int) -> Values:
    """The weights of a token's experts are divided by their sum."""
    return one_window(values, layers) | {
        "num_experts": positive_int(values, "num_local_experts"),
        "moe_intermediate_size": values.get("intermediate_size"),
        "norm_topk_prob": True,
    }


def window_or_types(values: Values, layers: int) -> Values:
    """Layers have the types that the file gives. By default, all have the same window."""
    if values.get("layer_types") is not None:
        return {}
    return {"layer_types": [FULL if values["sliding_window"] is None else SLIDING] * layers}


def _smollm3(values: Values, layers: int) -> Values:
    """Reads `no_rope_layers`, which has a 1 for layers with rotary embedding."""
    if values.get("no_rope_layers") is None:
        interval = positive_int(values, "no_rope_layer_interval", 4)
        rotary = [(layer + 1) % interval for layer in range(layers)]
    else:
        rotary = integers(values, "no_rope_layers", 1)[:layers]
    return implied_types([FULL if x else NO_ROPE for x in rotary], values, [FULL] * layers)


def _helium(values: Values, layers: int) -> Values:
    heads, head_dim, hidden = (positive_int(values, key) for key in ("num_attention_heads", "head_dim", "hidden_size"))
    if heads * head_dim != hidden:
        raise ValueError(f"num_attention_heads x head_dim is {heads * head_dim}; it must be hidden_size ({hidden})")
    return full_attention(values, layers)


def _hyperclovax(values: Values, layers: int) -> Values:
    """`logits_scaling` is a factor here, and a divisor in Granite. A missing `attention_multiplier` changes nothing."""
    return full_attention(values, layers) | {"logits_scaling": 1.0 / positive_number(values, "logits_scaling")}


def _exaone4(values: Values, layers: int) -> Values:
    """Layers without a window have no rotary embedding, if others have a window."""
    window, pattern = values.get("sliding_window"), values.get("sliding_window_pattern")
    types = values.get("layer_types")
    if window is None:
        return implied_types([FULL] * layers, values)
    if types is None:
        if isinstance(pattern, str):  # such as LLLG: L is local
            raise ValueError(f"sliding_window_pattern is {pattern!r}, but layer_types is missing")
        every = positive_int(values, "sliding_window_pattern")
        types = [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]
    if not isinstance(types, list):
        raise ValueError(f"layer_types is {types!r}; it must be a list")
    return {"layer_types": [NO_ROPE if kind == FULL else kind for kind in types]}


def _hunyuan(values: Values, layers: int) -> Values:
    if boolean(values, "use_qk_norm") is False:
        raise ValueError("use_qk_norm is False, which is not supported; supported: True")
    return full_attention(values, layers)


FAMILIES: dict[str, Family] = {
    "llama": Family(
        norms=NORMS,
        linears=LINEARS,
        inside=dict.fromkeys(("smolvlm", "idefics3"), _SMOLVLM),
        defaults=DEFAULTS | {"max_position_embeddings": 2048},
        only={
            **{"sliding_window": (None,), "activation": ("swiglu",)},
            **dict.fromkeys(("embedding_multiplier", "residual_multiplier", "logits_scaling"), (1.0,)),
        },
    ),
    "mistral": Family(
        norms=NORMS,
        linears=LINEARS,
        layers=(FULL, SLIDING),
        usual=one_window,
        inside={"mistral3": _PIXTRAL},
        defaults=DEFAULTS | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
        keys=("sliding_window",),
    ),
    "mixtral": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=without(LINEARS, "gate", "up", "down") | EXPERTS,
        in_files={"mlp.gate": "block_sparse_moe.gate"},
        expert_files={
            "mlp.experts.gate_up_proj": ("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
            "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2",),
        },
        layers=(FULL, SLIDING),
        usual=_mixtral,
        defaults=DEFAULTS
        | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": None}
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1000000.0},
        keys=("sliding_window", "num_local_experts", "num_experts_per_tok"),
        only={"router_jitter_noise": (0.0,)},
        unread=("output_router_logits", "router_aux_loss_coef"),
    ),
    "ministral": Family(
        norms=NORMS,
        linears=LINEARS,
        layers=(FULL, SLIDING),
        usual=window_or_types,
        defaults=DEFAULTS | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
        keys=("sliding_window",),
    ),
    "ministral3": Family(
        norms=NORMS,
        linears=LINEARS,
        rope_keys=("llama_4_scaling_beta",),
        layers=(FULL, SLIDING),
        usual=one_window,
        inside={"mistral3": _PIXTRAL},
        defaults=DEFAULTS
        | {
            "num_key_value_heads": 8,
            "head_dim": 128,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 262144,
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16384,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale_all_dim": 1.0,
                "mscale": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
        keys=("sliding_window",),
    ),
    "smollm3": Family(
        norms=NORMS,
        linears=LINEARS,
        layers=(FULL, NO_ROPE),
        usual=_smollm3,
        defaults=DEFAULTS
        | {
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "rope_theta": 2000000.0,
            "tie_word_embeddings": True,
        },
        keys=("no_rope_layers", "no_rope_layer_interval"),
        only={"use_sliding_window": (False,)},  # the other settings of windows then have no effect
        unread=("sliding_window", "max_window_layers"),
    ),
    "internlm3": Family(
        norms=NORMS,
        linears=LINEARS,
        defaults=DEFAULTS
        | {"head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 32768},
        only=dict.fromkeys(("qkv_bias", "bias"), (False,)),
    ),
    "iquestcoder": Family(
        norms=NORMS,
        linears=LINEARS,
        defaults=DEFAULTS
        | {"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072},
    ),
    "arcee": Family(
        norms=NORMS,
        linears=without(LINEARS, "gate"),
        activation="relu2",
        defaults=DEFAULTS | {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
    ),
    "helium": Family(
        norms=NORMS,
        linears=LINEARS,
        rope_interleaved=True,
        usual=_helium,
        defaults=DEFAULTS
        | {
            "head_dim": 128,
            "num_key_value_heads": 20,
            "rms_norm_eps": 1e-8,
            "rope_theta": 100000.0,
            "max_position_embeddings": 4096,
        },
    ),
    "ernie4_5": Family(
        norms=NORMS,
        linears=LINEARS,
        rope_interleaved=True,
        defaults=DEFAULTS
        | {
            "head_dim": 128,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "max_position_embeddings": 131072,
            "tie_word_embeddings": True,
        },
        only={"use_bias": (False, None)},
    ),
    "exaone4": Family(
        norms={"attn": (None, "post_attention_layernorm"), "mlp": (None, "post_feedforward_layernorm")},
        linears=LINEARS,
        qk_norms=QK_NORMS,
        layers=(FULL, SLIDING, NO_ROPE),
        usual=_exaone4,
        defaults=DEFAULTS
        | {
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 2048,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        keys=("sliding_window", "sliding_window_pattern"),
    ),
    "hunyuan_v1_dense": Family(
        norms=NORMS,
        linears=LINEARS,
        qk_norms=("self_attn.query_layernorm", "self_attn.key_layernorm"),
        qk_norm_after_rope=True,
        rope_keys=("alpha",),
        usual=_hunyuan,
        defaults=DEFAULTS | {"rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "use_qk_norm": True},
        keys=("use_qk_norm",),
        only={"use_cla": (False,)},
        unread=("eod_token_id", "attention_head_dim", "cla_share_factor", "org_vocab_size"),
    ),
    "hyperclovax": Family(
        norms={"attn": ("input_layernorm", "post_norm1"), "mlp": ("post_attention_layernorm", "post_norm2")},
        linears=LINEARS,
        usual=_hyperclovax,
        defaults=DEFAULTS | {"max_position_embeddings": 2048, "logits_scaling": 1.0},
        keys=("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"),
        only={"use_post_norm": (True,)},
    ),
}
