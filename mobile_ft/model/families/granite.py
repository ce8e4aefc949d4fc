"""IBM's Granite: 3, 4 (dense), and with sliding windows and attention sinks."""

from typing import Any

from mobile_ft.files.json_values import Values, positive_int
from mobile_ft.model.families.traits import (
    DEFAULTS,
    FULL,
    LINEARS,
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
# Settings of Mamba layers and of experts, which change nothing in a model without them.
_MAMBA = (
    *("mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand"),
    *("mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias", "time_step_limit"),
)
_EXPERTS = ("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "intermediate_size")


def _dense_hybrid(values: Values, layers: int) -> Values:
    """A model of the hybrid's form whose layers all have attention and a shared MLP, and no experts."""
    types = values.get("layer_types", values.get("layers_block_type"))
    if isinstance(types, list):
        names = {"attention": FULL, "mamba": "linear_attention"}
        types = [names.get(kind, kind) if isinstance(kind, str) else kind for kind in types]
    if types != [FULL] * layers:
        raise ValueError(f"layer_types must be {FULL} for each of {layers} layers; layers with Mamba are not supported")
    if values["num_local_experts"] != 0:
        raise ValueError(f"num_local_experts is {values['num_local_experts']!r}; experts are not supported: must be 0")
    if values["position_embedding_type"] != "rope":
        raise ValueError(
            f"position_embedding_type is {values['position_embedding_type']!r}, which is not supported; "
            "supported: 'rope'"
        )
    return {"layer_types": types, "intermediate_size": positive_int(values, "shared_intermediate_size")}


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
    "granitemoehybrid": Family(
        norms=NORMS,
        linears=without(LINEARS, "gate", "up")
        | {"gate_up": "shared_mlp.input_linear", "down": "shared_mlp.output_linear"},
        usual=_dense_hybrid,
        defaults=_DEFAULTS
        | {"num_local_experts": 8, "shared_intermediate_size": 1024, "position_embedding_type": None},
        keys=(
            *_MULTIPLIERS,
            *("shared_intermediate_size", "num_local_experts", "position_embedding_type", "layers_block_type"),
        ),
        only={"normalization_function": ("rmsnorm",)},
        unread=(*_MAMBA, *_EXPERTS, "init_method"),
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
