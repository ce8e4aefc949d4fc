"""The training graph: a decoder is a chain of residual units, `x + attn(x)` or `x + conv(x)`, and `x + mlp(x)`.

Weights are inputs of every function, so one traced program serves all layers. A unit's inputs always have this order:
activations; positions, if the unit mixes tokens; caches or state, if it decodes; rotary frequencies, if the attention
has them; `UnitSpec.weights`; `UnitSpec.lora` (A and B of each adapted linear layer in turn).
"""

import math
from collections.abc import Callable

from torch import Tensor
from torch.fx.traceback import annotate

from mobile_ft.model import ops
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.shapes import TAPS
from mobile_ft.model.unit_spec import Linear, UnitSpec

# Marks nodes of a trace whose products are the input of an exponential: 8 bits are not precise enough for them.
EXPONENT = "exponent"
# Marks the factors of a gated MLP, the largest part of its stored activations, for which 4 bits are precise enough.
FACTOR = "factor"

Weights = dict[str, Tensor]  # keys: names in `UnitSpec.weights`
Linears = dict[str, Callable[[Tensor], Tensor]]  # keys: names of linear layers


def _linears(spec: UnitSpec, weights: Weights, lora: list[Tensor]) -> Linears:
    """Returns a function x -> y for each linear layer of the unit."""
    adapters = iter(lora)

    def bind(linear: Linear, a: Tensor | None, b: Tensor | None) -> Callable[[Tensor], Tensor]:
        weight, bias = weights[f"{linear.name}.weight"], weights.get(f"{linear.name}.bias")

        def apply(x: Tensor) -> Tensor:
            y = ops.packed_linear(x, weight, linear.format, linear.out_features, a, b, spec.lora_scale)
            return y if bias is None else ops.add_bias(y, bias)

        return apply

    return {
        linear.name: bind(linear, *((next(adapters), next(adapters)) if linear.lora else (None, None)))
        for linear in spec.linears
    }


def _norm(spec: UnitSpec, x: Tensor, weights: Weights, name: str) -> Tensor:
    """RMS norm in the memory-sharing form: it saves z, and the input of linear layers is recomputed as z times the
    weight."""
    z, _ = ops.ms_rms_norm(x, spec.config.rms_norm_eps)
    return ops.affine(z, weights[f"{name}.weight"])


def _head_norm(spec: UnitSpec, x: Tensor, weights: Weights, name: str) -> Tensor:
    """RMS norm of each head."""
    y, _ = ops.rms_norm(x, weights[f"{name}.weight"], spec.config.rms_norm_eps)
    return y


# Activation of a family -> its gated op, and the op that keeps two bits of the gate.
_GATES = {"silu": (ops.swiglu, ops.swiglu_2bit), "gelu_pytorch_tanh": (ops.geglu, ops.geglu_2bit)}


def _gated(spec: UnitSpec, gate: Tensor, up: Tensor) -> Tensor:
    """Returns act(gate) * up, with the exact derivative or that of Approx-BP."""
    exact, two_bits = _GATES[spec.config.family.activation]
    if spec.activation != "approx2bit":
        return exact(gate, up)
    y, _ = two_bits(gate, up)
    return y


def _residual(spec: UnitSpec, x: Tensor, branch: Tensor, weights: Weights) -> Tensor:
    behind = spec.config.family.norms[spec.type][1]
    return ops.add(x, branch if behind is None else _norm(spec, branch, weights, behind))


def _qkv(
    spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor | None, weights: Weights, linears: Linears
) -> tuple[Tensor, Tensor, Tensor]:
    c = spec.config
    names, norms = c.family.linears, c.family.qk_norms
    z = _norm(spec, x, weights, c.family.norms["attn"][0])
    with annotate({EXPONENT: True}):
        q, k = linears[names["q"]](z), linears[names["k"]](z)
    v = linears[names["v"]](z)  # computed first, so that z can be freed early
    with annotate({EXPONENT: True}):
        if norms is not None:
            q, k = (_head_norm(spec, y, weights, norm) for norm, y in zip(norms, (q, k), strict=True))
        if inv_freq is not None:
            q = ops.rope(q, positions, inv_freq, c.num_attention_heads, False)
            k = ops.rope(k, positions, inv_freq, c.num_key_value_heads, False)
    return q, k, v


def attn(
    spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor | None, weights: list[Tensor], lora: list[Tensor]
) -> Tensor:
    """x [T, hidden] -> x + attention(x) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears = _linears(spec, named, lora)
    q, k, v = _qkv(spec, x, positions, inv_freq, named, linears)
    heads, kv_heads = spec.config.num_attention_heads, spec.config.num_key_value_heads
    o, _ = ops.attention(q, k, v, positions, heads, kv_heads, spec.window)
    return _residual(spec, x, linears[spec.config.family.linears["o"]](o), named)


def attn_decode(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Generation: like `attn`, after positions[0] cached tokens. Also returns the keys and values to append."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears = _linears(spec, named, lora)
    q, k, v = _qkv(spec, x, positions, inv_freq, named, linears)
    heads, kv_heads = spec.config.num_attention_heads, spec.config.num_key_value_heads
    o = ops.attention_decode(q, k, v, k_cache, v_cache, positions, heads, kv_heads, spec.window)
    return _residual(spec, x, linears[spec.config.family.linears["o"]](o), named), k, v


def conv(spec: UnitSpec, x: Tensor, positions: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + gated short convolution(x) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    bcx = linears[names["in"]](_norm(spec, x, named, spec.config.family.norms["conv"][0]))
    return _residual(spec, x, linears[names["out"]](ops.short_conv(bcx, named[TAPS], positions)), named)


def conv_decode(
    spec: UnitSpec, x: Tensor, positions: Tensor, state: Tensor, weights: list[Tensor], lora: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Generation: like `conv`, after the tokens of `state`. Also returns the new state."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    bcx = linears[names["in"]](_norm(spec, x, named, spec.config.family.norms["conv"][0]))
    y, state = ops.short_conv_decode(bcx, named[TAPS], state, positions)
    return _residual(spec, x, linears[names["out"]](y), named), state


def mlp(spec: UnitSpec, x: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + mlp(x) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    z = _norm(spec, x, named, spec.config.family.norms["mlp"][0])
    with annotate({FACTOR: True}):
        gate, up = linears[names["gate"]](z), linears[names["up"]](z)
    product = _gated(spec, gate, up)
    return _residual(spec, x, linears[names["down"]](product), named)


def embed(config: ModelConfig, fmt: str, tokens: Tensor, table: Tensor) -> Tensor:
    """tokens [T] -> x [T, hidden]."""
    scale = math.sqrt(config.hidden_size) if config.family.scaled_embedding else 1.0
    return ops.packed_embedding(tokens, table, fmt, config.vocab_size, scale)


def head(
    config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """x [T, hidden], targets [T] -> losses [T], 0 for targets of -100, and their gradients dx [T, hidden]."""
    z, rstd = ops.rms_norm(x, norm, config.rms_norm_eps)
    losses, dz = ops.linear_cross_entropy(z, weight, fmt, config.vocab_size, targets)
    return losses, ops.rms_norm_backward(dz, x, norm, rstd)


def head_loss(config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Evaluation: returns only the losses [T]."""
    z, _ = ops.rms_norm(x, norm, config.rms_norm_eps)
    return ops.linear_cross_entropy_loss(z, weight, fmt, config.vocab_size, targets)


def logits(config: ModelConfig, fmt: str, x: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """x [T, hidden] -> logits [T, vocab]; the runtime calls it on a few rows at a time."""
    z, _ = ops.rms_norm(x, norm, config.rms_norm_eps)
    return ops.packed_linear(z, weight, fmt, config.vocab_size, None, None, 0.0)
