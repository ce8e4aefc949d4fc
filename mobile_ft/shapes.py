"""Names and shapes of a decoder's weights, without torch."""

from mobile_ft.config import ModelConfig

UNIT_TYPES = ("attn", "mlp")


def vector_shapes(config: ModelConfig, unit_type: str) -> dict[str, int]:
    """{name within the layer: size} of the norms and biases of a unit of that type."""
    family = config.family
    before, behind = family.norms[unit_type]
    shapes = {f"{before}.weight": config.hidden_size}
    if unit_type == "attn" and family.qk_norm:
        shapes |= {f"self_attn.{name}_norm.weight": config.head_dim for name in "qk"}
    if unit_type == "attn" and family.qkv_bias:
        linears = linear_shapes(config, unit_type)
        shapes |= {f"self_attn.{name}_proj.bias": linears[f"self_attn.{name}_proj"][1] for name in "qkv"}
    if behind is not None:
        shapes[f"{behind}.weight"] = config.hidden_size
    return shapes


def linear_shapes(config: ModelConfig, unit_type: str) -> dict[str, tuple[int, int]]:
    """{name: (in_features, out_features)} of the linears of a unit of that type, in execution order."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    if unit_type == "attn":
        return {
            "self_attn.q_proj": (hidden, queries),
            "self_attn.k_proj": (hidden, keys),
            "self_attn.v_proj": (hidden, keys),
            "self_attn.o_proj": (queries, hidden),
        }
    return {"mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner), "mlp.down_proj": (inner, hidden)}


def forward_flops(config: ModelConfig, unit_type: str, again: bool = False) -> list[int]:
    """[a, b]: a unit's forward takes a t + b t^2 at t tokens, two a multiply-add of its linears and its attention.

    `again`: without its last linear, whose output no gradient needs.
    """
    linears = list(linear_shapes(config, unit_type).values())
    products = sum(k * n for k, n in (linears[:-1] if again else linears))
    attention = config.num_attention_heads * config.head_dim if unit_type == "attn" else 0  # half of both products
    return [2 * products, 2 * attention]


def head_flops(config: ModelConfig) -> int:
    """Of the loss and its gradient, for each token."""
    return 4 * config.hidden_size * config.vocab_size


def base_parameters(config: ModelConfig) -> int:
    """How many weights the model has, LoRA aside."""
    layer = 0
    for unit_type in UNIT_TYPES:
        layer += sum(vector_shapes(config, unit_type).values())
        layer += sum(k * n for k, n in linear_shapes(config, unit_type).values())
    tables = 1 if config.tie_word_embeddings else 2
    return config.hidden_size * (tables * config.vocab_size + 1) + config.num_hidden_layers * layer
