"""The model families: one entry per family. No code checks for a family's name.

A family with known traits is a new entry (docs/internals/adding_a_family.md). A new trait is a field of `Family` and
changes the code that uses it (`shapes`, `units`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mobile_ft.files.json_values import Values, boolean, integers, positive_int, positive_number

# Types of layers, by the unit before their MLP.
FULL, SLIDING, NO_ROPE, CONV = "full_attention", "sliding_attention", "full_attention_no_rope", "conv"


def _full_attention(values: Values, layers: int) -> Values:
    types = values.get("layer_types")
    return {"layer_types": [FULL] * layers if types is None else types}


@dataclass(frozen=True)
class Family:
    """The traits of a decoder, in Hugging Face's names.

    `norms` has, for the units "attn", "conv" and "mlp", the norm before the branch and the one after it. `linears` maps
    roles to names: q, k, v, o of attention, gate, up, down of the MLP, in and out of a short convolution.
    """

    norms: dict[str, tuple[str, str | None]]
    linears: dict[str, str]
    final_norm: str = "model.norm"
    activation: str = "silu"  # activation of the gate; `units` has an op for each
    activation_key: str = "hidden_act"  # its key in config.json
    qk_norms: tuple[str, str] | None = None  # RMS norms of q and k, per head
    qkv_bias: bool = False
    scaled_embedding: bool = False  # whether embeddings (but not a tied head) are multiplied by sqrt(hidden_size)
    norm_offset: float = 0.0  # a norm multiplies by norm_offset + its weight
    layers: tuple[str, ...] = (FULL,)  # supported types of layers
    rope_by_type: bool = False  # `rope_parameters` has an object for each type of layer
    inside: str | None = None  # model_type of the model with vision whose `text_config` may be of this family
    defaults: dict[str, Any] = field(default_factory=dict)  # Transformers' defaults
    # Converts the family's own settings of config.json, including `layer_types`, to the usual keys. Raises ValueError.
    usual: Callable[[Values, int], Values] = _full_attention
    # The family's own settings of config.json. `hf_config` has the shared ones, and rejects any other.
    keys: tuple[str, ...] = ()  # implemented, most of them by `usual`
    only: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # {setting: values that change nothing}
    repeats: dict[str, str] = field(default_factory=dict)  # {setting: the setting that it must be equal to}
    unread: tuple[str, ...] = ()  # ignored, because they change nothing
    unread_outside: tuple[str, ...] = ()  # the same, in the model with vision


_NORMS: dict[str, tuple[str, str | None]] = {
    "attn": ("input_layernorm", None),
    "mlp": ("post_attention_layernorm", None),
}
_LINEARS = {role: f"self_attn.{role}_proj" for role in "qkvo"} | {
    role: f"mlp.{role}_proj" for role in ("gate", "up", "down")
}
_QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_DEFAULTS = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}
# If it is false, the other settings of windows have no effect.
_NO_WINDOW: dict[str, tuple[Any, ...]] = {"use_sliding_window": (False,)}
_WINDOW = ("sliding_window", "max_window_layers")


def _mistral(values: Values, layers: int) -> Values:
    """All layers have the same window; later models have null."""
    return _implied([FULL if values["sliding_window"] is None else SLIDING] * layers, values)


def _implied(types: list[str], values: Values, said: list[str] | None = None) -> Values:
    """Returns the types of layers that follow from other settings. `layer_types` may repeat them, by the names
    `said`."""
    if values.get("layer_types") not in (None, said or types):
        raise ValueError(f"layer_types must be {said or types}, like the other settings, or be left out")
    return {"layer_types": types}


def _smollm3(values: Values, layers: int) -> Values:
    """Reads `no_rope_layers`, which has a 1 for layers with rotary embedding."""
    if values.get("no_rope_layers") is None:
        interval = positive_int(values, "no_rope_layer_interval", 4)
        rotary = [(layer + 1) % interval for layer in range(layers)]
    else:
        rotary = integers(values, "no_rope_layers", 1)[:layers]
    return _implied([FULL if x else NO_ROPE for x in rotary], values, [FULL] * layers)


def _gemma3(values: Values, layers: int) -> Values:
    scalar, head_dim = values["query_pre_attn_scalar"], values["head_dim"]
    if scalar != head_dim:
        raise ValueError(f"query_pre_attn_scalar is {scalar!r}; it must be head_dim ({head_dim})")
    if values.get("layer_types") is not None:
        return {}
    pattern = positive_int(values, "sliding_window_pattern")
    return {"layer_types": [SLIDING if (layer + 1) % pattern else FULL for layer in range(layers)]}


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


# By Hugging Face's model_type.
FAMILIES: dict[str, Family] = {
    "llama": Family(
        norms=_NORMS,
        linears=_LINEARS,
        defaults=_DEFAULTS | {"max_position_embeddings": 2048},
        only={
            **{"sliding_window": (None,), "activation": ("swiglu",)},
            **dict.fromkeys(("embedding_multiplier", "residual_multiplier", "logits_scaling"), (1.0,)),
        },
    ),
    "mistral": Family(
        norms=_NORMS,
        linears=_LINEARS,
        layers=(FULL, SLIDING),
        usual=_mistral,
        defaults=_DEFAULTS | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
        keys=("sliding_window",),
    ),
    "smollm3": Family(
        norms=_NORMS,
        linears=_LINEARS,
        layers=(FULL, NO_ROPE),
        usual=_smollm3,
        defaults=_DEFAULTS
        | {
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "rope_theta": 2000000.0,
            "tie_word_embeddings": True,
        },
        keys=("no_rope_layers", "no_rope_layer_interval"),
        only=_NO_WINDOW,
        unread=_WINDOW,
    ),
    "qwen2": Family(
        norms=_NORMS,
        linears=_LINEARS,
        qkv_bias=True,
        defaults=_DEFAULTS | {"num_key_value_heads": 32, "max_position_embeddings": 32768},
        only=_NO_WINDOW | {"use_mrope": (False,)},
        unread=_WINDOW,
    ),
    "qwen3": Family(
        norms=_NORMS,
        linears=_LINEARS,
        qk_norms=_QK_NORMS,
        defaults=_DEFAULTS | {"head_dim": 128, "num_key_value_heads": 32, "max_position_embeddings": 32768},
        only=_NO_WINDOW,
        unread=_WINDOW,
    ),
    "gemma3_text": Family(
        norms={
            "attn": ("input_layernorm", "post_attention_layernorm"),
            "mlp": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
        },
        linears=_LINEARS,
        activation="gelu_pytorch_tanh",
        activation_key="hidden_activation",
        qk_norms=_QK_NORMS,
        scaled_embedding=True,
        norm_offset=1.0,
        layers=(FULL, SLIDING),
        usual=_gemma3,
        rope_by_type=True,
        inside="gemma3",
        defaults={  # published Gemma files leave most of them out
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "rope_local_base_freq": 10000.0,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
        },
        keys=("query_pre_attn_scalar", "rope_local_base_freq", "sliding_window", "sliding_window_pattern"),
        only={"hidden_act": ("gelu_pytorch_tanh",)},
        unread=("_sliding_window_pattern",),
        unread_outside=(
            *("vision_config", "mm_tokens_per_image", "image_token_index", "image_token_id"),
            *("boi_token_index", "boi_token_id", "eoi_token_index", "eoi_token_id"),
        ),
    ),
    "lfm2": Family(
        norms={"attn": ("operator_norm", None), "conv": ("operator_norm", None), "mlp": ("ffn_norm", None)},
        linears=_LINEARS
        | {
            "o": "self_attn.out_proj",
            "gate": "feed_forward.w1",
            "up": "feed_forward.w3",
            "down": "feed_forward.w2",
            "in": "conv.in_proj",
            "out": "conv.out_proj",
        },
        final_norm="model.embedding_norm",
        qk_norms=("self_attn.q_layernorm", "self_attn.k_layernorm"),
        layers=(FULL, CONV),
        usual=_lfm2,
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
}
