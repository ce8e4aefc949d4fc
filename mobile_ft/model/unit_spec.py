"""The kinds of residual units of a model, and their weights, without torch."""

from dataclasses import dataclass

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import FULL, NO_ROPE, SLIDING
from mobile_ft.model.shapes import vector_shapes


@dataclass(frozen=True)
class Linear:
    """One packed linear layer of a unit: y [T, out_features] = x [T, in_features] W^T."""

    name: str  # Hugging Face's module name within the layer, such as `self_attn.q_proj`
    in_features: int
    out_features: int
    format: str
    lora: bool


@dataclass(frozen=True)
class UnitSpec:
    """The properties that all units of a kind share. They define the kind's methods."""

    kind: str  # prefix of the methods' names
    type: str  # "attn", "conv" or "mlp"
    linears: tuple[Linear, ...]
    lora_rank: int
    lora_scale: float
    config: ModelConfig
    activation: str = "exact"  # one of ACTIVATIONS
    layer_type: str = FULL  # type of attention

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of norms, biases and taps."""
        return vector_shapes(self.config, self.type)

    @property
    def weights(self) -> list[str]:
        return [*self.vectors, *(f"{linear.name}.weight" for linear in self.linears)]

    @property
    def lora(self) -> list[str]:
        return [f"{x.name}.lora_{ab}.weight" for x in self.linears if x.lora for ab in "AB"]

    @property
    def takes_positions(self) -> bool:
        """Whether the unit mixes tokens."""
        return self.type != "mlp"

    @property
    def inv_freq(self) -> str | None:
        """Name of the rotary frequencies in `weights.ptd`, or None if the unit has none."""
        if self.type != "attn" or self.layer_type == NO_ROPE:
            return None
        return "inv_freq_sliding" if self.layer_type == SLIDING else "inv_freq"

    @property
    def cache_width(self) -> int:
        """Values per token in each of attention's two caches. Other units have no cache."""
        return self.config.num_key_value_heads * self.config.head_dim if self.type == "attn" else 0

    @property
    def state_shape(self) -> tuple[int, int]:
        """Shape of the state that a short convolution keeps of earlier tokens."""
        return max(self.config.conv_L_cache - 1, 0) if self.type == "conv" else 0, self.config.hidden_size

    @property
    def window(self) -> int:
        return self.config.sliding_window if self.layer_type == SLIDING else 0
