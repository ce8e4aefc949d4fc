"""Names and shapes of a decoder's weights, without torch."""

import math

import numpy as np

from mobile_ft.errors import UserError
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import CONV, DELTA, HYBRID, MAMBA, MLP, Family
from mobile_ft.model.formats import F32

TAPS = "conv.conv.weight"  # weight of a short convolution
DELTA_TAPS, DELTA_DECAY, DELTA_BIAS = (  # vectors of a delta net, besides its norm
    f"linear_attn.{name}" for name in ("conv1d.weight", "A_log", "dt_bias")
)
MAMBA_TAPS, MAMBA_CONV_BIAS, MAMBA_DECAY, MAMBA_BIAS, MAMBA_SKIP, MAMBA_NORM = (  # vectors within `Family.mamba`
    *("conv1d.weight", "conv1d.bias", "A_log", "dt_bias", "D", "norm.weight"),
)
MAMBA_ONES = "ones"  # the weight of the norm of groups, whose result is multiplied by MAMBA_NORM
MAMBA_IN_SCALE = "in_scale"  # factors of what the first linear layer computes
_MIXERS = {CONV: "conv", DELTA: "delta", MAMBA: "mamba", HYBRID: "hybrid", MLP: "mlp"}


# Gemma 4's per-layer embeddings: a table with a row of `hidden_size_per_layer_input` numbers for each token and layer,
# the layers of a token together; a linear layer from the embedding to all layers' rows; and a norm of its output.
PER_LAYER_TABLE, PER_LAYER_LINEAR, PER_LAYER_NORM = (
    f"model.{name}.weight"
    for name in ("embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm")
)


def unit_types(config: ModelConfig, layer: int) -> tuple[str, ...]:
    """Returns the types of a layer's units, in execution order."""
    mixer = _MIXERS.get(config.layer_type(layer), "attn")
    if config.family.one_unit:
        return (mixer,)
    mlp = "experts" if config.num_experts and layer >= config.num_dense_layers else "mlp"
    return (mixer, mlp, "per_layer") if config.hidden_size_per_layer_input else (mixer, mlp)


def check_units(config: ModelConfig, source: str) -> ModelConfig:
    """Returns the configuration. Raises UserError if its family has no units of a type that it needs, or no layers that
    share keys and values."""
    if config.num_kv_shared_layers and "num_kv_shared_layers" not in config.family.keys:
        raise UserError(f"{source}: a {config.model_type} has no layers that share keys and values")
    for layer in range(config.num_hidden_layers):
        for unit_type in unit_types(config, layer):
            if unit_type not in config.family.norms:
                raise UserError(
                    f"{source}: a {config.model_type} has no units of type {unit_type}, as layer {layer} needs"
                )
    return config


def unit_norms(config: ModelConfig, layer: int, unit_type: str) -> tuple[str | None, str | None]:
    """Returns the names of the norms before and after the branch of a unit of that type."""
    norms, mixer = config.family.norms, _MIXERS.get(config.layer_type(layer), "attn")
    return norms.get(f"{mixer} {unit_type}", norms[unit_type])


def vector_shapes(config: ModelConfig, layer: int, unit_type: str) -> dict[str, tuple[int, ...]]:
    """Returns {name within the layer: shape} of the vectors of a unit of that type: norms, biases, attention sinks, and
    the taps of a short convolution, oldest token first."""
    family = config.family
    before, behind = unit_norms(config, layer, unit_type)
    shapes: dict[str, tuple[int, ...]] = {}
    if before is not None:
        shapes[f"{before}.weight"] = (config.hidden_size,)
    if unit_type in ("attn", "hybrid"):
        shapes |= _attention_vectors(config, layer)
    if unit_type == "delta":
        heads, (_, values) = config.linear_num_value_heads, delta_widths(config)
        shapes |= {
            DELTA_TAPS: (config.linear_conv_kernel_dim, values),
            DELTA_DECAY: (heads,),
            DELTA_BIAS: (heads,),
            f"{family.delta_norm}.weight": (config.linear_value_head_dim,),
        }
    if unit_type in ("mamba", "hybrid"):
        heads, (values, channels) = config.mamba_n_heads, mamba_widths(config)
        vectors = {MAMBA_TAPS: (config.mamba_d_conv, channels), MAMBA_CONV_BIAS: (channels,)}
        vectors |= dict.fromkeys((MAMBA_DECAY, MAMBA_BIAS, MAMBA_SKIP), (heads,))
        vectors |= {MAMBA_NORM: (values,)} if family.mamba_norm else {}
        shapes |= {f"{family.mamba}.{name}": shape for name, shape in vectors.items()}
    if unit_type == "experts" and family.expert_bias is not None:
        shapes[family.expert_bias] = (config.num_experts,)
    if unit_type == "conv":
        shapes[TAPS] = (config.conv_L_cache, config.hidden_size)
    if behind is not None:
        shapes[f"{behind}.weight"] = (config.hidden_size,)
    return shapes


def constant_shapes(config: ModelConfig, layer: int, unit_type: str) -> dict[str, tuple[int, ...]]:
    """Returns {name within the layer: shape} of vectors that only the runtime has: ones, the weights of norms without,
    and factors."""
    name, own_kv = config.family.v_norm, config.kv_layer(layer) == layer
    if unit_type == "attn" and name and own_kv:
        return {f"{name}.weight": (config.head_dim_of(layer),)}
    shapes: dict[str, tuple[int, ...]] = {}
    if unit_type in ("mamba", "hybrid") and config.family.mamba_norm:
        shapes[f"{config.family.mamba}.{MAMBA_ONES}"] = (mamba_widths(config)[0] // config.mamba_n_groups,)
    if unit_type == "hybrid":
        shapes[f"{config.family.mamba}.{MAMBA_IN_SCALE}"] = (sum(mamba_widths(config)) + config.mamba_n_heads,)
    return shapes


def _attention_vectors(config: ModelConfig, layer: int) -> dict[str, tuple[int, ...]]:
    family, (queries, keys) = config.family, attention_widths(config, layer)
    shapes: dict[str, tuple[int, ...]] = {}
    if family.qk_norms is not None:
        widths = (queries, keys) if family.qk_norm_whole else (config.head_dim_of(layer),) * 2
        own = family.qk_norms if config.kv_layer(layer) == layer else family.qk_norms[:1]
        shapes |= {f"{name}.weight": (width,) for name, width in zip(own, widths, strict=False)}
    if family.qkv_bias:
        linears = linear_shapes(config, layer, "attn")
        shapes |= {f"{family.linears[role]}.bias": (linears[family.linears[role]][1],) for role in "qkv"}
    if family.sinks is not None:
        shapes[family.sinks] = (config.num_attention_heads,)
    return shapes


def attention_widths(config: ModelConfig, layer: int) -> tuple[int, int]:
    """Returns the numbers in a token's queries, and in its keys."""
    head_dim = config.head_dim_of(layer)
    return config.num_attention_heads * head_dim, config.num_key_value_heads * head_dim


def delta_widths(config: ModelConfig) -> tuple[int, int]:
    """Returns the numbers in a token's values in a delta net, and in its queries, keys and values."""
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return values, 2 * config.linear_num_key_heads * config.linear_key_head_dim + values


def mamba_widths(config: ModelConfig) -> tuple[int, int]:
    """Returns the numbers in a token's x in a Mamba-2 layer, and in its x, B and C."""
    values = config.mamba_n_heads * config.mamba_d_head
    return values, values + 2 * config.mamba_n_groups * config.mamba_d_state


def mamba_in_scale(config: ModelConfig) -> F32:
    """Returns the factors of what a Mamba-2 layer's first linear layer computes, float32 [out_features]."""
    width, state = mamba_widths(config)[0], config.mamba_n_groups * config.mamba_d_state
    parts = (
        (width, config.mamba_gate_multiplier),
        (width, config.mamba_x_multiplier),
        (state, config.mamba_b_multiplier),
        (state, config.mamba_c_multiplier),
        (config.mamba_n_heads, config.mamba_dt_multiplier),
    )
    return np.concatenate([np.full(size, factor, np.float32) for size, factor in parts])


def linear_shapes(config: ModelConfig, layer: int, unit_type: str) -> dict[str, tuple[int, int]]:
    """Returns {name: (in_features, out_features)} of the linear layers of a unit of that type, in execution order."""
    hidden, inner, own_kv = config.hidden_size, config.intermediate_size_of(layer), config.kv_layer(layer) == layer
    queries, keys = attention_widths(config, layer)
    by_role = {
        "attn": {
            "qkv": (hidden, queries + 2 * keys),
            "q": (hidden, queries * (2 if config.family.q_gate else 1)),
            **({"k": (hidden, keys), "v": (hidden, keys)} if own_kv else {}),
            "head_gate": (hidden, config.num_attention_heads),
            "o": (queries, hidden),
        },
        "conv": {"in": (hidden, 3 * hidden), "out": (hidden, hidden)},
        "delta": {
            "delta_qkvz": (hidden, sum(delta_widths(config))),
            "delta_ba": (hidden, 2 * config.linear_num_value_heads),
            "delta_qkv": (hidden, delta_widths(config)[1]),
            **dict.fromkeys(("delta_q", "delta_k"), (hidden, config.linear_num_key_heads * config.linear_key_head_dim)),
            "delta_v": (hidden, delta_widths(config)[0]),
            "delta_gate": (hidden, delta_widths(config)[0]),
            "delta_beta": (hidden, config.linear_num_value_heads),
            "delta_decay": (hidden, config.linear_num_value_heads),
            "delta_out": (delta_widths(config)[0], hidden),
        },
        "mamba": {
            "mamba_in": (hidden, sum(mamba_widths(config)) + config.mamba_n_heads),
            "mamba_out": (mamba_widths(config)[0], hidden),
        },
        "mlp": {
            "gate_up": (hidden, 2 * inner),
            "gate": (hidden, inner),
            "up": (hidden, inner),
            "down": (inner, hidden),
        },
        "experts": {
            "router": (hidden, config.num_experts),
            "experts_in": (hidden, 2 * config.num_experts * config.moe_intermediate_size),
            "experts_out": (config.moe_intermediate_size, config.num_experts * hidden),
            **_shared_shapes(config),
        },
        "per_layer": {
            "per_layer_gate": (hidden, config.hidden_size_per_layer_input),
            "per_layer_out": (config.hidden_size_per_layer_input, hidden),
        },
    }
    by_role["hybrid"] = by_role["attn"] | by_role["mamba"]
    names = config.family.linears
    return {names[role]: shape for role, shape in by_role[unit_type].items() if role in names}


def _shared_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Returns {role: (in_features, out_features)} of the MLP beside experts."""
    hidden, inner = config.hidden_size, config.shared_expert_intermediate_size
    if not inner:
        return {}
    inward = dict.fromkeys(("shared_gate", "shared_up"), (hidden, inner)) | {"shared_gate_up": (hidden, 2 * inner)}
    return inward | {"shared_down": (inner, hidden), "shared_router": (hidden, 1)}


def experts_of(config: ModelConfig, name: str) -> int:
    """Returns the number of experts whose rows a matrix has, one below the other; 1 for any other matrix. The name may
    be one within the layer, or that of a tensor."""
    return config.num_experts if name.removesuffix(".weight").endswith(expert_matrices(config.family)) else 1


def expert_matrices(family: Family) -> tuple[str, ...]:
    """Returns the names within the layer of the two matrices that have the rows of all experts, or none."""
    return tuple(family.linears[role] for role in ("experts_in", "experts_out") if role in family.linears)


def forward_flops(config: ModelConfig, layer: int, unit_type: str, again: bool = False) -> list[int]:
    """Returns [a, b]: a unit's forward has a t + b t^2 FLOPs at t tokens, 2 per multiply-add of linear layers and
    attention.

    `again` leaves out the last linear layer, whose output no gradient needs.
    """
    linears = list(linear_shapes(config, layer, unit_type).values())
    if unit_type == "experts":  # a token's experts
        router, *experts = linears[:3]
        share = config.num_experts_per_tok
        linears = [router, *((k, n // config.num_experts * share) for k, n in experts), *linears[3:]]
    products = sum(k * n for k, n in (linears[:-1] if again else linears))
    attention = attention_widths(config, layer)[0] if unit_type in ("attn", "hybrid") else 0  # half of both products
    # A delta net reads and writes its state for each token: three products with a matrix [key dim, value dim].
    states = 3 * config.linear_key_head_dim * delta_widths(config)[0] if unit_type == "delta" else 0
    states += 2 * config.mamba_d_state * mamba_widths(config)[0] if unit_type in ("mamba", "hybrid") else 0
    return [2 * (products + states), 2 * attention]


def head_flops(config: ModelConfig) -> int:
    """Returns the FLOPs of the loss and its gradient, per token."""
    return 4 * config.hidden_size * config.vocab_size


def base_parameters(config: ModelConfig) -> int:
    """Returns the number of the model's weights, without LoRA and, as Transformers counts, the biases of routers."""
    tables = 1 if config.tie_word_embeddings else 2
    weights = config.hidden_size * (tables * config.vocab_size + 1)
    width = config.hidden_size_per_layer_input
    weights += (config.vocab_size + config.hidden_size) * config.num_hidden_layers * width + width
    for layer in range(config.num_hidden_layers):
        for unit_type in unit_types(config, layer):
            vectors = vector_shapes(config, layer, unit_type)
            weights += sum(math.prod(shape) for name, shape in vectors.items() if name != config.family.expert_bias)
            weights += sum(k * n for k, n in linear_shapes(config, layer, unit_type).values())
    return weights
