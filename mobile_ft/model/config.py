"""The configuration of a model: the shape of a decoder, and its family."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.model.families import CONV, DELTA, FAMILIES, FULL, HYBRID, MAMBA, MLP, NO_ROPE, SLIDING, Family
from mobile_ft.model.rope import Scaling

# Far above any existing decoder. Sizes that are computed from a shape need no further checks.
MOST_LAYERS = 1000
MOST_TAPS = 16  # limit of a short convolution
_MOST_WEIGHTS = 1 << 32  # limit of a matrix


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a decoder, with Hugging Face's field names."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    model_type: str = "llama"  # a key of FAMILIES
    rope_scaling: dict[str, Any] | None = None  # for layers with full attention
    layer_types: tuple[str, ...] = ()  # one per layer, a constant of `families`; empty: all FULL
    sliding_window: int = 0  # SLIDING layers: number of tokens that a query sees, including itself
    rope_local_base_freq: float = 0.0  # SLIDING layers: their rope_theta
    # CONV layers: number of tokens in a channel's convolution, including the current one.
    conv_L_cache: int = 0  # noqa: N815 (Hugging Face's name)
    sliding_rope_scaling: dict[str, Any] | None = None  # for layers with sliding attention
    layer_rope_theta: tuple[float, ...] = ()  # one per layer, in place of rope_theta; 0: no rotary embedding
    embedding_multiplier: float = 1.0  # of embeddings, but not of a tied head
    residual_multiplier: float = 1.0  # of every branch before it is added
    attention_multiplier: float = 0.0  # scale of scores; 0: 1 / sqrt(head_dim)
    logits_scaling: float = 1.0  # divisor of logits
    attn_logit_softcapping: float = 0.0  # limit of scores; 0: none
    final_logit_softcapping: float = 0.0  # limit of logits; 0: none
    # DELTA layers: heads and their sizes, and number of tokens in a channel's convolution.
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    delta_beta_scale: float = 1.0  # of the step of a delta net
    delta_norm_eps: float = 0.0  # of the norm of a delta net's output; 0: rms_norm_eps
    num_experts: int = 0  # 0: every layer has one MLP
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0  # of an expert
    shared_expert_intermediate_size: int = 0  # of an MLP beside the experts, which all tokens take; 0: none
    num_dense_layers: int = 0  # the first layers, which have one MLP
    norm_topk_prob: bool = False  # whether the weights of a token's experts are divided by their sum
    routed_scaling_factor: float = 1.0  # of these weights
    # MAMBA and HYBRID layers: heads and their size, groups of heads that share B and C, size of B and C, and number of
    # tokens in a channel's convolution.
    mamba_n_heads: int = 0
    mamba_d_head: int = 0
    mamba_n_groups: int = 0
    mamba_d_state: int = 0
    mamba_d_conv: int = 0
    # Factors: of the parts of what a Mamba-2 layer's first linear layer computes, of branches, and of an MLP's gate.
    mamba_gate_multiplier: float = 1.0
    mamba_x_multiplier: float = 1.0
    mamba_b_multiplier: float = 1.0
    mamba_c_multiplier: float = 1.0
    mamba_dt_multiplier: float = 1.0
    mamba_out_multiplier: float = 1.0
    attention_out_multiplier: float = 1.0
    mlp_gate_multiplier: float = 1.0
    mlp_down_multiplier: float = 1.0
    global_head_dim: int = 0  # head_dim of FULL layers; 0: head_dim
    num_kv_shared_layers: int = 0  # the last layers, which take keys and values from the last one of their type before
    use_double_wide_mlp: bool = False  # whether MLPs of these layers have twice the intermediate_size
    hidden_size_per_layer_input: int = 0  # width of per-layer embeddings; 0: none

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def layer_type(self, layer: int) -> str:
        return self.layer_types[layer] if self.layer_types else FULL

    def rope(self, layer: int) -> tuple[float, Scaling] | None:
        """Returns rope_theta and scaling of a layer, or None if it has no rotary embedding."""
        kind = self.layer_type(layer)
        theta, scaling = self.rope_theta, self.rope_scaling
        if kind == SLIDING:
            theta, scaling = self.rope_local_base_freq, self.sliding_rope_scaling
        if self.layer_rope_theta:
            theta = self.layer_rope_theta[layer]
        return None if kind in (NO_ROPE, CONV, DELTA, MAMBA, MLP) or theta == 0 else (theta, scaling)

    def head_dim_of(self, layer: int) -> int:
        return self.global_head_dim if self.global_head_dim and self.layer_type(layer) == FULL else self.head_dim

    def intermediate_size_of(self, layer: int) -> int:
        wide = self.use_double_wide_mlp and self.kv_layer(layer) != layer
        return self.intermediate_size * (2 if wide else 1)

    def kv_layer(self, layer: int) -> int:
        """Returns the layer that computes the keys and values of a layer's attention: the layer itself, or an earlier
        one."""
        own = self.num_hidden_layers - self.num_kv_shared_layers
        same = (i for i in range(own - 1, -1, -1) if self.layer_type(i) == self.layer_type(layer))
        return layer if layer < own else next(same)

    @property
    def block_norm_eps(self) -> float:
        """The epsilon of norms that read the residual stream, which is kept divided by residual_multiplier. So a branch
        is added as it is."""
        return self.rms_norm_eps / self.residual_multiplier**2

    @property
    def embedding_scale(self) -> float:
        """The factor from embeddings to the residual stream."""
        scale = math.sqrt(self.hidden_size) if self.family.scaled_embedding else 1.0
        return scale * self.embedding_multiplier / self.residual_multiplier

    @property
    def attention_scale(self) -> float:
        return self.attention_multiplier or 1.0 / math.sqrt(self.head_dim)

    @property
    def embedding(self) -> str:
        """The name of the embedding's weight."""
        return f"{self.family.embedding}.weight"

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]


def check_config(config: ModelConfig, source: str) -> ModelConfig:
    """Returns the configuration. Raises UserError if the runtime does not support its shape."""
    if config.num_hidden_layers > MOST_LAYERS:
        raise UserError(f"{source}: num_hidden_layers is {config.num_hidden_layers}; it must be at most {MOST_LAYERS}")
    for key in ("hidden_size", "intermediate_size"):
        if getattr(config, key) % 32:
            raise UserError(f"{source}: {key} is {getattr(config, key)}; it must be a multiple of 32")
    for key in ("head_dim", "global_head_dim"):
        size = getattr(config, key)
        if size % 8 or size > 512:
            raise UserError(f"{source}: {key} is {size}; it must be a multiple of 8, at most 512")
        if (config.num_attention_heads * size) % 32:
            raise UserError(f"{source}: num_attention_heads x {key} must be a multiple of 32")
    if config.num_attention_heads % config.num_key_value_heads:
        raise UserError(
            f"{source}: num_attention_heads ({config.num_attention_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_key_value_heads})"
        )
    _check_shared(config, source)
    if config.num_experts:
        _check_experts(config, source)
    if config.hidden_size_per_layer_input % 32:
        raise UserError(
            f"{source}: hidden_size_per_layer_input is {config.hidden_size_per_layer_input}; it must be a multiple of "
            "32"
        )
    if CONV in config.layer_types and not 1 < config.conv_L_cache <= MOST_TAPS:
        raise UserError(f"{source}: conv_L_cache is {config.conv_L_cache}; it must be from 2 to {MOST_TAPS}")
    if DELTA in config.layer_types:
        _check_delta(config, source)
    if {MAMBA, HYBRID} & set(config.layer_types):
        _check_mamba(config, source)
    if SLIDING in config.layer_types and not (config.sliding_window and config.rope_local_base_freq):
        raise UserError(f"{source}: layers with a sliding window require sliding_window and rope_local_base_freq")
    widest_head = max(config.head_dim, config.global_head_dim)
    rows = max(config.vocab_size, 2 * config.intermediate_size, config.num_attention_heads * widest_head)
    if config.hidden_size * rows > _MOST_WEIGHTS:
        raise UserError(
            f"{source}: hidden_size {config.hidden_size} gives a matrix of {config.hidden_size} x {rows}; it must "
            f"have at most {_MOST_WEIGHTS} weights"
        )
    return config


def _check_shared(config: ModelConfig, source: str) -> None:
    own = config.num_hidden_layers - config.num_kv_shared_layers
    types = [config.layer_type(layer) for layer in range(config.num_hidden_layers)]
    missing = set(types[max(own, 0) :]) - set(types[: max(own, 0)])
    if missing and config.num_kv_shared_layers:
        raise UserError(
            f"{source}: num_kv_shared_layers is {config.num_kv_shared_layers}; the layers before them must have "
            f"{', '.join(sorted(missing))}"
        )


def _check_delta(config: ModelConfig, source: str) -> None:
    if not 1 < config.linear_conv_kernel_dim <= MOST_TAPS:
        raise UserError(
            f"{source}: linear_conv_kernel_dim is {config.linear_conv_kernel_dim}; it must be from 2 to {MOST_TAPS}"
        )
    for key in ("linear_key_head_dim", "linear_value_head_dim"):
        if not 0 < getattr(config, key) <= 256 or getattr(config, key) % 8:
            raise UserError(f"{source}: {key} is {getattr(config, key)}; it must be a multiple of 8, at most 256")
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    if keys < 1 or values % keys:
        raise UserError(
            f"{source}: linear_num_value_heads ({values}) must be a multiple of linear_num_key_heads ({keys})"
        )
    if values * config.linear_value_head_dim % 32:
        raise UserError(f"{source}: linear_num_value_heads x linear_value_head_dim must be a multiple of 32")


def _check_mamba(config: ModelConfig, source: str) -> None:
    if not 1 < config.mamba_d_conv <= MOST_TAPS:
        raise UserError(f"{source}: mamba_d_conv is {config.mamba_d_conv}; it must be from 2 to {MOST_TAPS}")
    for key in ("mamba_d_head", "mamba_d_state"):
        if not 0 < getattr(config, key) <= 256 or getattr(config, key) % 8:
            raise UserError(f"{source}: {key} is {getattr(config, key)}; it must be a multiple of 8, at most 256")
    heads, groups = config.mamba_n_heads, config.mamba_n_groups
    if groups < 1 or heads % groups:
        raise UserError(f"{source}: mamba_n_heads ({heads}) must be a multiple of mamba_n_groups ({groups})")
    if heads * config.mamba_d_head % 32:
        raise UserError(f"{source}: mamba_n_heads x mamba_d_head must be a multiple of 32")


def _check_experts(config: ModelConfig, source: str) -> None:
    if not 0 < config.num_experts_per_tok <= config.num_experts:
        raise UserError(
            f"{source}: num_experts_per_tok is {config.num_experts_per_tok}; it must be from 1 to num_experts, "
            f"{config.num_experts}"
        )
    if config.moe_intermediate_size % 32 or not config.moe_intermediate_size:
        raise UserError(
            f"{source}: the intermediate size of experts is {config.moe_intermediate_size}; it must be a multiple of 32"
        )
    if config.shared_expert_intermediate_size % 32:
        raise UserError(
            f"{source}: the intermediate size of the MLP beside experts is {config.shared_expert_intermediate_size}; "
            "it must be a multiple of 32"
        )
    if config.num_experts * 2 * config.moe_intermediate_size * config.hidden_size > _MOST_WEIGHTS:
        raise UserError(f"{source}: a matrix of all experts must have at most {_MOST_WEIGHTS} weights")
