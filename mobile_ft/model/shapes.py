"""Names and shapes of a decoder's weights, without torch."""

import math
from collections import Counter

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import CONV

TAPS = "conv.conv.weight"  # weight of a short convolution


def unit_types(config: ModelConfig, layer: int) -> tuple[str, str]:
    """Returns the types of a layer's units, in execution order."""
    return ("conv" if config.layer_type(layer) == CONV else "attn"), "mlp"


def vector_shapes(config: ModelConfig, unit_type: str) -> dict[str, tuple[int, ...]]:
    """Returns {name within the layer: shape} of the vectors of a unit of that type: norms, biases, and the taps of a
    short convolution, oldest token first."""
    family = config.family
    before, behind = family.norms[unit_type]
    shapes: dict[str, tuple[int, ...]] = {f"{before}.weight": (config.hidden_size,)}
    if unit_type == "attn" and family.qk_norms is not None:
        shapes |= {f"{name}.weight": (config.head_dim,) for name in family.qk_norms}
    if unit_type == "attn" and family.qkv_bias:
        linears = linear_shapes(config, unit_type)
        shapes |= {f"{family.linears[role]}.bias": (linears[family.linears[role]][1],) for role in "qkv"}
    if unit_type == "conv":
        shapes[TAPS] = (config.conv_L_cache, config.hidden_size)
    if behind is not None:
        shapes[f"{behind}.weight"] = (config.hidden_size,)
    return shapes


def linear_shapes(config: ModelConfig, unit_type: str) -> dict[str, tuple[int, int]]:
    """Returns {name: (in_features, out_features)} of the linear layers of a unit of that type, in execution order."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    by_role = {
        "attn": {"q": (hidden, queries), "k": (hidden, keys), "v": (hidden, keys), "o": (queries, hidden)},
        "conv": {"in": (hidden, 3 * hidden), "out": (hidden, hidden)},
        "mlp": {"gate": (hidden, inner), "up": (hidden, inner), "down": (inner, hidden)},
    }
    return {config.family.linears[role]: shape for role, shape in by_role[unit_type].items()}


def linear_names(config: ModelConfig) -> tuple[str, ...]:
    """Returns the last parts of the linear layers' names, which LoRA's targets use, such as `q_proj`."""
    units = dict.fromkeys(unit for layer in range(config.num_hidden_layers) for unit in unit_types(config, layer))
    return tuple(dict.fromkeys(name.split(".")[-1] for unit in units for name in linear_shapes(config, unit)))


def forward_flops(config: ModelConfig, unit_type: str, again: bool = False) -> list[int]:
    """Returns [a, b]: a unit's forward has a t + b t^2 FLOPs at t tokens, 2 per multiply-add of linear layers and
    attention.

    `again` leaves out the last linear layer, whose output no gradient needs.
    """
    linears = list(linear_shapes(config, unit_type).values())
    products = sum(k * n for k, n in (linears[:-1] if again else linears))
    attention = config.num_attention_heads * config.head_dim if unit_type == "attn" else 0  # half of both products
    return [2 * products, 2 * attention]


def head_flops(config: ModelConfig) -> int:
    """Returns the FLOPs of the loss and its gradient, per token."""
    return 4 * config.hidden_size * config.vocab_size


def base_parameters(config: ModelConfig) -> int:
    """Returns the number of the model's weights, without LoRA."""
    tables = 1 if config.tie_word_embeddings else 2
    weights = config.hidden_size * (tables * config.vocab_size + 1)
    for unit_type, count in Counter(x for i in range(config.num_hidden_layers) for x in unit_types(config, i)).items():
        weights += count * sum(math.prod(shape) for shape in vector_shapes(config, unit_type).values())
        weights += count * sum(k * n for k, n in linear_shapes(config, unit_type).values())
    return weights
