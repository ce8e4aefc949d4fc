"""The training graph: a decoder as a chain of residual units, `x + attn(x)` and `x + mlp(x)`.

Weights are inputs of every function, so one traced program serves all layers. A unit's inputs are always in the
order: activations, then `UnitSpec.weights`, then `UnitSpec.lora` (A and B of each adapted linear in turn).
"""

from dataclasses import dataclass

from torch import Tensor

from mobile_ft import ops
from mobile_ft.config import ModelConfig


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
    """What all units of one kind share: enough to trace their methods once."""

    kind: str  # prefix of the methods' names
    type: str  # "attn" or "mlp"
    norm: str  # Hugging Face's name of the norm before the branch
    linears: tuple[Linear, ...]
    lora_rank: int
    lora_scale: float
    config: ModelConfig
    activation: str = "exact"  # or "approx2bit"

    @property
    def weights(self) -> list[str]:
        return [f"{self.norm}.weight"] + [f"{linear.name}.weight" for linear in self.linears]

    @property
    def lora(self) -> list[str]:
        return [f"{x.name}.lora_{ab}.weight" for x in self.linears if x.lora for ab in "AB"]


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


UNIT_NORMS = {"attn": "input_layernorm", "mlp": "post_attention_layernorm"}


def _linears(spec: UnitSpec, weights: list[Tensor], lora: list[Tensor]) -> list:
    """One function x -> y for each linear of the unit."""
    adapters = iter(lora)

    def bind(linear: Linear, weight: Tensor, a: Tensor | None, b: Tensor | None):  # type: ignore[no-untyped-def]
        return lambda x: ops.linear_q4(x, weight, linear.format, linear.out_features, a, b, spec.lora_scale)

    return [
        bind(linear, weight, *((next(adapters), next(adapters)) if linear.lora else (None, None)))
        for linear, weight in zip(spec.linears, weights, strict=True)
    ]


def _norm(spec: UnitSpec, x: Tensor, weight: Tensor) -> Tensor:
    """RMS norm in the memory-sharing form: what it saves is z, and the linears' input is z times the weight again."""
    z, _ = ops.ms_rms_norm(x, spec.config.rms_norm_eps)
    return ops.affine(z, weight)


def _qkv(
    spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor, norm: Tensor, linears: list
) -> tuple[Tensor, Tensor, Tensor]:
    c = spec.config
    z = _norm(spec, x, norm)
    q, k, v = (linear(z) for linear in linears)
    q = ops.rope(q, positions, inv_freq, c.num_attention_heads, False)
    k = ops.rope(k, positions, inv_freq, c.num_key_value_heads, False)
    return q, k, v


def attn(
    spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor, weights: list[Tensor], lora: list[Tensor]
) -> Tensor:
    """x [T, hidden] -> x + attention(x) [T, hidden]."""
    norm, *packed = weights
    *qkv, o_proj = _linears(spec, packed, lora)
    q, k, v = _qkv(spec, x, positions, inv_freq, norm, qkv)
    o, _ = ops.attention(q, k, v, positions, spec.config.num_attention_heads, spec.config.num_key_value_heads, 0)
    return ops.add(x, o_proj(o))


def attn_decode(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    inv_freq: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Generation: like `attn` after positions[0] cached tokens; also returns the keys and values to append."""
    norm, *packed = weights
    *qkv, o_proj = _linears(spec, packed, lora)
    q, k, v = _qkv(spec, x, positions, inv_freq, norm, qkv)
    heads, kv_heads = spec.config.num_attention_heads, spec.config.num_key_value_heads
    o = ops.attention_decode(q, k, v, k_cache, v_cache, positions, heads, kv_heads, 0)
    return ops.add(x, o_proj(o)), k, v


def mlp(spec: UnitSpec, x: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + mlp(x) [T, hidden]."""
    norm, *packed = weights
    gate, up, down = _linears(spec, packed, lora)
    z = _norm(spec, x, norm)
    if spec.activation == "exact":
        return ops.add(x, down(ops.swiglu(gate(z), up(z))))
    y, _ = ops.swiglu_2bit(gate(z), up(z))
    return ops.add(x, down(y))


def embed(config: ModelConfig, fmt: str, tokens: Tensor, table: Tensor) -> Tensor:
    """tokens [T] -> x [T, hidden]."""
    return ops.embedding_q(tokens, table, fmt, config.vocab_size)


def head(
    config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """x [T, hidden], targets [T] -> summed loss [1], its gradient dx [T, hidden]."""
    z, rstd = ops.rms_norm(x, norm, config.rms_norm_eps)
    loss, dz = ops.linear_cross_entropy(z, weight, fmt, config.vocab_size, targets)
    return loss, ops.rms_norm_backward(dz, x, norm, rstd)


def head_loss(config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Evaluation: the summed loss [1] alone."""
    z, _ = ops.rms_norm(x, norm, config.rms_norm_eps)
    return ops.linear_cross_entropy_loss(z, weight, fmt, config.vocab_size, targets)


def logits(config: ModelConfig, fmt: str, x: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """x [T, hidden] -> logits [T, vocab]; the runtime calls it on a few rows at a time."""
    z, _ = ops.rms_norm(x, norm, config.rms_norm_eps)
    return ops.linear_q4(z, weight, fmt, config.vocab_size, None, None, 0.0)
