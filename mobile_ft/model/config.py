"""What the exporter and the runtime know of a model: the shape of a decoder, and its family."""

from dataclasses import asdict, dataclass
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.model.families import CONV, FAMILIES, FULL, SLIDING, Family

# Far above any decoder there is: what follows from a shape may be worked out without another thought.
MOST_LAYERS = 1000
MOST_TAPS = 16  # of a short convolution
_MOST_WEIGHTS = 1 << 32  # of a matrix


@dataclass(frozen=True)
class ModelConfig:
    """A decoder; field names are Hugging Face's."""

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
    model_type: str = "llama"  # of FAMILIES
    rope_scaling: dict[str, Any] | None = None  # of layers with full attention
    layer_types: tuple[str, ...] = ()  # of `families`, one a layer; empty: all FULL
    sliding_window: int = 0  # of SLIDING layers: tokens that a query sees, itself among them
    rope_local_base_freq: float = 0.0  # of SLIDING layers: their rope_theta
    # Of CONV layers: tokens that a channel's convolution sees, the current one among them.
    conv_L_cache: int = 0  # noqa: N815 (Hugging Face's name)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def layer_type(self, layer: int) -> str:
        return self.layer_types[layer] if self.layer_types else FULL

    @property
    def family(self) -> Family:
        return FAMILIES[self.model_type]


def check_config(config: ModelConfig, source: str) -> ModelConfig:
    """Raises UserError where the runtime could not run a model of this shape."""
    if config.num_hidden_layers > MOST_LAYERS:
        raise UserError(f"{source}: num_hidden_layers is {config.num_hidden_layers}; it must be at most {MOST_LAYERS}")
    for key in ("hidden_size", "intermediate_size"):
        if getattr(config, key) % 32:
            raise UserError(f"{source}: {key} is {getattr(config, key)}; it must be a multiple of 32")
    if config.head_dim % 8 or config.head_dim > 256:
        raise UserError(f"{source}: head_dim is {config.head_dim}; it must be a multiple of 8, at most 256")
    if (config.num_attention_heads * config.head_dim) % 32:
        raise UserError(f"{source}: num_attention_heads x head_dim must be a multiple of 32")
    if config.num_attention_heads % config.num_key_value_heads:
        raise UserError(
            f"{source}: num_attention_heads ({config.num_attention_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_key_value_heads})"
        )
    if CONV in config.layer_types and not 1 < config.conv_L_cache <= MOST_TAPS:
        raise UserError(f"{source}: conv_L_cache is {config.conv_L_cache}; it must be 2 to {MOST_TAPS}")
    if SLIDING in config.layer_types and not (config.sliding_window and config.rope_local_base_freq):
        raise UserError(f"{source}: sliding_window and rope_local_base_freq must be there for layers that slide")
    rows = max(config.vocab_size, config.intermediate_size, config.num_attention_heads * config.head_dim)
    if config.hidden_size * rows > _MOST_WEIGHTS:
        raise UserError(
            f"{source}: hidden_size {config.hidden_size} makes a matrix of {config.hidden_size} x {rows}; it must "
            f"have at most {_MOST_WEIGHTS} weights"
        )
    return config
