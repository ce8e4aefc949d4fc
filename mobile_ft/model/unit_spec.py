"""The kinds of residual units of a model, and their weights, without torch."""

from dataclasses import dataclass, replace
from typing import Protocol

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import SLIDING
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.lora_layers import adaptable_shapes, lora_module, lora_shapes, lora_target
from mobile_ft.model.rope import rope_factor, rotary_pairs
from mobile_ft.model.shapes import (
    constant_shapes,
    delta_widths,
    experts_of,
    linear_shapes,
    mamba_widths,
    unit_norms,
    unit_types,
    vector_shapes,
)


class WeightFormats(Protocol):
    """The configuration and formats of a model, which define its units."""

    @property
    def config(self) -> ModelConfig: ...

    def format_of(self, name: str) -> str: ...


@dataclass(frozen=True)
class Linear:
    """One packed linear layer of a unit: y [T, out_features] = x [T, in_features] W^T."""

    name: str  # Hugging Face's module name within the layer, such as `self_attn.q_proj`
    in_features: int
    out_features: int
    format: str
    lora: bool
    experts: int = 1  # whose rows the weight has

    def lora_shapes(self, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the shapes of A and B."""
        return lora_shapes(rank, self.in_features, self.out_features, self.experts)


@dataclass(frozen=True)
class Attention:
    """The numbers of an attention unit."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int  # number of tokens that a query sees, including itself; 0: all
    scale: float  # of scores
    softcap: float  # limit of scores; 0: none
    rotary_pairs: int  # of a head; 0: no rotary embedding
    rope_factor: float
    side: str | None = None  # "gives": later units take its keys and values; "takes": it takes those of an earlier unit

    @property
    def queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class UnitSpec:
    """The properties that all units of a kind share. They define the kind's methods."""

    kind: str  # prefix of the methods' names
    type: str  # "attn", "conv", "delta", "mamba", "hybrid", "mlp", "experts" or "per_layer"
    linears: tuple[Linear, ...]
    vector_shapes: tuple[tuple[str, tuple[int, ...]], ...]  # of norms, biases, sinks and taps, by name
    norms: tuple[str | None, str | None]  # before and after the branch
    lora_rank: int
    lora_scale: float
    config: ModelConfig
    activation: str = "exact"  # one of ACTIVATIONS
    attention: Attention | None = None

    @property
    def vectors(self) -> dict[str, tuple[int, ...]]:
        return dict(self.vector_shapes)

    @property
    def weights(self) -> list[str]:
        return [*self.vectors, *(f"{linear.name}.weight" for linear in self.linears)]

    @property
    def lora(self) -> list[str]:
        modules = [lora_module(self.config.family, linear.name) for linear in self.linears if linear.lora]
        return [f"{module}.lora_{ab}.weight" for module in modules for ab in "AB"]

    @property
    def takes_positions(self) -> bool:
        """Whether the unit mixes tokens."""
        return self.type not in ("mlp", "experts", "per_layer")

    @property
    def rotary_pairs(self) -> int:
        """Number of rotary frequencies, the first weight of a unit that has any."""
        return 0 if self.attention is None else self.attention.rotary_pairs

    @property
    def cache_width(self) -> int:
        """Values per token in each of attention's two caches. Other units have no cache."""
        return 0 if self.attention is None or self.side == "takes" else self.attention.keys

    @property
    def side(self) -> str | None:
        """What the unit has besides x: it "gives" keys and values to later units, it "takes" them, or it reads a
        "per_layer" embedding."""
        if self.type == "per_layer":
            return "per_layer"
        return None if self.attention is None else self.attention.side

    @property
    def side_widths(self) -> tuple[int, ...]:
        """Widths of these tensors: keys and values, or the embedding."""
        if self.side == "per_layer":
            return (self.config.hidden_size_per_layer_input,)
        return () if self.side is None else (_keys_of(self), _keys_of(self))

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the state that a short convolution or a recurrence keeps of earlier tokens; (0,): there is none."""
        c = self.config
        if self.type == "conv":
            return c.conv_L_cache - 1, c.hidden_size
        if self.type == "delta":
            values, channels = delta_widths(c)
            return ((c.linear_conv_kernel_dim - 1) * channels + c.linear_key_head_dim * values,)
        if self.type in ("mamba", "hybrid"):
            values, channels = mamba_widths(c)
            return ((c.mamba_d_conv - 1) * channels + c.mamba_d_state * values,)
        return (0,)


def unit_spec(model: WeightFormats, layer: int, unit_type: str, lora: LoraConfig, activation: str) -> UnitSpec:
    """Returns the properties of one unit. Its kind is named for its type and its attention."""
    c = model.config
    adaptable = adaptable_shapes(c, layer)
    linears = tuple(
        Linear(
            n,
            i,
            o,
            model.format_of(f"model.layers.{layer}.{n}.weight"),
            n in adaptable and lora_target(c.family, n) in lora.targets,
            experts_of(c, n),
        )
        for n, (i, o) in linear_shapes(c, layer, unit_type).items()
    )
    attention = _attention(c, layer) if unit_type in ("attn", "hybrid") else None
    kind = unit_type
    if attention is not None:
        kind += "_sliding" * (attention.window > 0) + "_no_rope" * (attention.rotary_pairs == 0)
        kind += f"_{attention.side}" if attention.side else ""
    vectors = (vector_shapes(c, layer, unit_type) | constant_shapes(c, layer, unit_type)).items()
    norms = unit_norms(c, layer, unit_type)
    return UnitSpec(kind, unit_type, linears, tuple(vectors), norms, lora.rank, lora.scale, c, activation, attention)


def unit_specs(model: WeightFormats, lora: LoraConfig, activation: str) -> list[tuple[int, UnitSpec]]:
    """Returns (layer, spec) of every unit in execution order. Units with the same properties share a kind."""
    kinds: list[UnitSpec] = []  # before they are numbered
    specs = []
    for layer in range(model.config.num_hidden_layers):
        for unit_type in unit_types(model.config, layer):
            spec = unit_spec(model, layer, unit_type, lora, activation)
            if spec not in kinds:
                kinds.append(spec)
            number = [x for x in kinds if x.kind == spec.kind].index(spec)
            specs.append((layer, replace(spec, kind=f"{spec.kind}{number or ''}")))
    return specs


def inv_freq_name(config: ModelConfig, layer: int) -> str:
    """Returns the name of a layer's rotary frequencies in `weights.ptd`."""
    if config.layer_rope_theta:
        return f"inv_freq.{layer}"
    return "inv_freq_sliding" if config.layer_type(layer) == SLIDING else "inv_freq"


def _keys_of(spec: UnitSpec) -> int:
    assert spec.attention is not None
    return spec.attention.keys


def _side(config: ModelConfig, layer: int) -> str | None:
    if config.kv_layer(layer) != layer:
        return "takes"
    later = range(config.num_hidden_layers - config.num_kv_shared_layers, config.num_hidden_layers)
    return "gives" if any(config.kv_layer(other) == layer for other in later) else None


def _attention(config: ModelConfig, layer: int) -> Attention:
    rope, head_dim = config.rope(layer), config.head_dim_of(layer)
    return Attention(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        window=config.sliding_window if config.layer_type(layer) == SLIDING else 0,
        scale=config.attention_scale,
        softcap=config.attn_logit_softcapping,
        rotary_pairs=0 if rope is None else rotary_pairs(head_dim, rope[1]),
        rope_factor=1.0 if rope is None else rope_factor(rope[1]),
        side=_side(config, layer),
    )
