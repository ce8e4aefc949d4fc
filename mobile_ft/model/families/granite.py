"""IBM's Granite: 3, 4 (dense and with Mamba-2), and with sliding windows and attention sinks."""

import math
from typing import Any

from mobile_ft.files.json_values import Values, positive_int
from mobile_ft.model.families.traits import (
    DEFAULTS,
    FULL,
    LINEARS,
    MAMBA,
    NO_ROPE,
    NORMS,
    SLIDING,
    Family,
    full_attention,
    without,
)

_MULTIPLIERS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier")
_DEFAULTS: dict[str, Any] = (
    DEFAULTS | {"max_position_embeddings": 2048, "attention_multiplier": 1.0} | dict.fromkeys(_MULTIPLIERS, 1.0)
)
# Settings of Mamba layers, which are read if there are any, and of experts.
_MAMBA = (
    *("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand"),
    *("mamba_conv_bias", "mamba_proj_bias", "time_step_limit"),
)
_UNREAD = ("output_router_logits", "router_aux_loss_coef")
_MOE = without(LINEARS, "gate", "up", "down") | {
    "router": "block_sparse_moe.router",
    "experts_in": "block_sparse_moe.experts.gate_up_proj",
    "experts_out": "block_sparse_moe.experts.down_proj",
}
_MOE_FILES: dict[str, tuple[str, ...]] = {
    "block_sparse_moe.experts.gate_up_proj": ("block_sparse_moe.input_linear",),
    "block_sparse_moe.experts.down_proj": ("block_sparse_moe.output_linear",),
}
_ROUTER_FILE = {"block_sparse_moe.router": "block_sparse_moe.router.layer"}
_SHARED = {"shared_gate_up": "shared_mlp.input_linear", "shared_down": "shared_mlp.output_linear"}


def _hybrid(values: Values, layers: int) -> Values:
    """Layers with attention or Mamba-2, each with an MLP, alone or beside experts."""
    position = values["position_embedding_type"]
    if position not in ("rope", "nope", None):
        raise ValueError(f"position_embedding_type is {position!r}; it must be 'rope', 'nope' or null")
    attention = FULL if position == "rope" else NO_ROPE
    names = {"attention": attention, FULL: attention, "linear_attention": MAMBA}
    types = values.get("layer_types", values.get("layers_block_type"))
    if types is None:
        types = [MAMBA] * layers
    if isinstance(types, list):
        types = [names.get(kind, kind) if isinstance(kind, str) else kind for kind in types]
    usual: Values = {"layer_types": types, "num_experts": 0}
    if values["num_local_experts"] != 0:
        usual |= _moe(values, layers) | {"layer_types": types}
    else:
        usual["intermediate_size"] = positive_int(values, "shared_intermediate_size")
    return usual | _mamba(values) if isinstance(types, list) and MAMBA in types else usual


def _mamba(values: Values) -> Values:
    """Returns the size of a head, which may be "auto". Raises ValueError for what Mamba layers do not support here."""
    for key, accepted in {
        "mamba_conv_bias": (True,),
        "mamba_proj_bias": (False,),
        "time_step_limit": ([0.0, math.inf], [0.0, {"__float__": "Infinity"}], None),  # as Transformers writes it
    }.items():
        if values.get(key, accepted[0]) not in accepted:
            raise ValueError(f"{key} is {values[key]!r}; supported: {accepted[0]!r}")
    inner = positive_int(values, "mamba_expand") * positive_int(values, "hidden_size")
    heads = positive_int(values, "mamba_n_heads")
    dim = inner // heads if values["mamba_d_head"] == "auto" else positive_int(values, "mamba_d_head")
    if dim * heads != inner:
        raise ValueError(f"mamba_n_heads {heads} x mamba_d_head {dim} must be mamba_expand x hidden_size, {inner}")
    return {"mamba_d_head": dim}


def _moe(values: Values, layers: int) -> Values:
    """The softmax of a token's best experts alone is that of all of them, divided by its sum over the best."""
    return full_attention(values, layers) | {
        "num_experts": positive_int(values, "num_local_experts"),
        "moe_intermediate_size": positive_int(values, "intermediate_size"),
        "shared_expert_intermediate_size": values.get("shared_intermediate_size"),
        "norm_topk_prob": True,
    }


def _swa(values: Values, layers: int) -> Values:
    """Every layer has its own rope_theta; 0 means no rotary embedding."""
    types = values.get("layer_types")
    if types is None:
        types = [SLIDING if layer % 4 else FULL for layer in range(layers)]
    thetas = values.get("layer_rope_theta")
    if thetas is None:
        return {"layer_types": types}
    if (
        not isinstance(thetas, list)
        or len(thetas) != layers
        or any(isinstance(x, bool) or not isinstance(x, int | float) or not 0 <= x < 1e30 for x in thetas)
    ):
        raise ValueError(f"layer_rope_theta must have a number for each of {layers} layers")
    return {"layer_types": types, "layer_rope_theta": thetas}


FAMILIES: dict[str, Family] = {
    "granite": Family(norms=NORMS, linears=LINEARS, usual=full_attention, defaults=_DEFAULTS, keys=_MULTIPLIERS),
    "granitemoe": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=_MOE,
        in_files=_ROUTER_FILE,
        expert_files=_MOE_FILES,
        usual=_moe,
        defaults=_DEFAULTS | {"num_local_experts": 8, "num_experts_per_tok": 2},
        keys=(*_MULTIPLIERS, "num_local_experts", "num_experts_per_tok"),
        unread=_UNREAD,
    ),
    "granitemoeshared": Family(
        norms=NORMS | {"experts": NORMS["mlp"]},
        linears=_MOE | _SHARED,
        in_files=_ROUTER_FILE,
        expert_files=_MOE_FILES,
        usual=_moe,
        defaults=_DEFAULTS | {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 0},
        keys=(*_MULTIPLIERS, "num_local_experts", "num_experts_per_tok", "shared_intermediate_size"),
        unread=_UNREAD,
    ),
    "granitemoehybrid": Family(
        norms=NORMS | {"mamba": NORMS["attn"], "experts": NORMS["mlp"]},
        linears=_MOE
        | _SHARED
        | {"gate_up": "shared_mlp.input_linear", "down": "shared_mlp.output_linear"}
        | {"mamba_in": "mamba.in_proj", "mamba_out": "mamba.out_proj"},
        in_files=_ROUTER_FILE,
        expert_files=_MOE_FILES,
        layers=(FULL, NO_ROPE, MAMBA),
        usual=_hybrid,
        defaults=_DEFAULTS
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 1024}
        | {"position_embedding_type": None}
        | {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto"}
        | {"mamba_d_conv": 4, "mamba_expand": 2},
        keys=(
            *_MULTIPLIERS,
            *("shared_intermediate_size", "num_local_experts", "num_experts_per_tok", "position_embedding_type"),
            "layers_block_type",
            *_MAMBA,
        ),
        only={"normalization_function": ("rmsnorm",)},
        unread=(*_UNREAD, "mamba_chunk_size", "init_method"),
    ),
    "granite_swa": Family(
        norms=NORMS,
        linears=LINEARS,
        sinks="self_attn.sinks",
        layers=(FULL, SLIDING),
        usual=_swa,
        defaults=_DEFAULTS
        | {
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
            "sliding_window": 128,
        },
        keys=(*_MULTIPLIERS, "sliding_window", "layer_rope_theta"),
    ),
}
