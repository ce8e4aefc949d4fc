"""The training graph: a decoder is a chain of residual units, `x + attn(x)` or `x + conv(x)`, and `x + mlp(x)`.

Weights are inputs of every function, so one traced program serves all layers. A unit's inputs always have this order:
activations; positions, if the unit mixes tokens; caches or state, if it decodes; keys and values of an earlier unit or
a per-layer embedding, if the unit takes them (`UnitSpec.side_widths`); rotary frequencies, if the attention has them;
`UnitSpec.weights`; `UnitSpec.lora` (A and B of each adapted linear layer in turn).
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx.traceback import annotate

from mobile_ft.model import ops
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.shapes import (
    DELTA_BIAS,
    DELTA_DECAY,
    DELTA_TAPS,
    MAMBA_BIAS,
    MAMBA_CONV_BIAS,
    MAMBA_DECAY,
    MAMBA_IN_SCALE,
    MAMBA_NORM,
    MAMBA_ONES,
    MAMBA_SKIP,
    MAMBA_TAPS,
    TAPS,
    mamba_widths,
)
from mobile_ft.model.unit_spec import Attention, Linear, UnitSpec

# Marks nodes of a trace whose products are the input of an exponential: 8 bits are not precise enough for them.
EXPONENT = "exponent"
# Marks the factors of a gated MLP, the largest part of its stored activations, for which 4 bits are precise enough.
FACTOR = "factor"

Weights = dict[str, Tensor]  # keys: names in `UnitSpec.weights`
Linears = dict[str, Callable[[Tensor], Tensor]]  # keys: names of linear layers


def _adapters(spec: UnitSpec, lora: list[Tensor]) -> dict[str, tuple[Tensor | None, Tensor | None]]:
    """Returns A and B of each linear layer of the unit, or None for both."""
    left = iter(lora)
    return {linear.name: (next(left), next(left)) if linear.lora else (None, None) for linear in spec.linears}


def _linears(spec: UnitSpec, weights: Weights, lora: list[Tensor]) -> Linears:
    """Returns a function x -> y for each linear layer of the unit."""

    def bind(linear: Linear, a: Tensor | None, b: Tensor | None) -> Callable[[Tensor], Tensor]:
        weight, bias = weights[f"{linear.name}.weight"], weights.get(f"{linear.name}.bias")

        def apply(x: Tensor) -> Tensor:
            y = ops.packed_linear(x, weight, linear.format, linear.out_features, a, b, spec.lora_scale)
            return y if bias is None else ops.add_bias(y, bias)

        return apply

    adapters = _adapters(spec, lora)
    return {linear.name: bind(linear, *adapters[linear.name]) for linear in spec.linears}


def _norm(x: Tensor, weights: Weights, name: str, eps: float) -> Tensor:
    """RMS norm in the memory-sharing form: it saves z, and the input of linear layers is recomputed as z times the
    weight."""
    z, _ = ops.ms_rms_norm(x, eps)
    return ops.affine(z, weights[f"{name}.weight"])


def _branch_input(spec: UnitSpec, x: Tensor, weights: Weights) -> Tensor:
    """Returns the input of a unit's branch: x, after the norm before the branch if the family has one."""
    before = spec.norms[0]
    return x if before is None else _norm(x, weights, before, spec.config.block_norm_eps)


def _qk_norms(spec: UnitSpec, q: Tensor, k: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """RMS norms of q and k: of each head, or of a whole row, by the size of the weight."""
    names = spec.config.family.qk_norms
    if names is None:
        return q, k
    q, k = (_head_norm(spec, y, weights, name) for name, y in zip(names, (q, k), strict=True))
    return q, k


def _head_norm(spec: UnitSpec, y: Tensor, weights: Weights, name: str) -> Tensor:
    normed, _ = ops.rms_norm(y, weights[f"{name}.weight"], spec.config.rms_norm_eps)
    return normed


# Activation of a family -> its gated op, and the op that keeps two bits of the gate.
_GATES = {"silu": (ops.swiglu, ops.swiglu_2bit), "gelu_pytorch_tanh": (ops.geglu, ops.geglu_2bit)}


_ACTIVATIONS = {"relu2": ops.relu2}  # of MLPs without a gate


def _gated(spec: UnitSpec, gate: Tensor, up: Tensor) -> Tensor:
    """Returns act(gate) * up, with the exact derivative or that of Approx-BP."""
    exact, two_bits = _GATES[spec.config.family.activation]
    if spec.activation != "approx2bit":
        return exact(gate, up)
    y, _ = two_bits(gate, up)
    return y


def _residual(spec: UnitSpec, x: Tensor, branch: Tensor, weights: Weights) -> Tensor:
    behind = spec.norms[1]
    return ops.add(x, branch if behind is None else _norm(branch, weights, behind, spec.config.rms_norm_eps))


def _rope(spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor | None, heads: int) -> Tensor:
    if inv_freq is None:
        return x
    interleaved, factor = spec.config.family.rope_interleaved, _attention_of(spec).rope_factor
    return ops.rope(x, positions, inv_freq, heads, False, interleaved, factor)


def _attention_of(spec: UnitSpec) -> Attention:
    assert spec.attention is not None
    return spec.attention


def _qkv(
    spec: UnitSpec, z: Tensor, positions: Tensor, inv_freq: Tensor | None, weights: Weights, linears: Linears
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns q, k, v, and the gate of each element of the output if the family has one."""
    gate = None
    family, a = spec.config.family, _attention_of(spec)
    names = family.linears
    with annotate({EXPONENT: True}):
        if "qkv" in names:
            q, kv = ops.split(linears[names["qkv"]](z), 1, a.queries)
            k, v = ops.split(kv, 1, a.keys)
        else:
            q, k = linears[names["q"]](z), linears[names["k"]](z)
            if family.q_gate:
                q, gate = ops.split(q, a.heads, a.head_dim)
    if "qkv" not in names:
        v = linears[names["v"]](z)  # computed first, so that z can be freed early
    if family.v_norm is not None:
        v = _head_norm(spec, v, weights, family.v_norm)
    with annotate({EXPONENT: True}):
        if not family.qk_norm_after_rope:
            q, k = _qk_norms(spec, q, k, weights)
        q = _rope(spec, q, positions, inv_freq, a.heads)
        k = _rope(spec, k, positions, inv_freq, a.kv_heads)
        if family.qk_norm_after_rope:
            q, k = _qk_norms(spec, q, k, weights)
    return q, k, v, gate


def _queries(
    spec: UnitSpec, z: Tensor, positions: Tensor, inv_freq: Tensor | None, weights: Weights, linears: Linears
) -> Tensor:
    """Returns q of a unit that takes keys and values from an earlier one."""
    family = spec.config.family
    with annotate({EXPONENT: True}):
        q = linears[family.linears["q"]](z)
        if family.qk_norms is not None:
            q = _head_norm(spec, q, weights, family.qk_norms[0])
        return _rope(spec, q, positions, inv_freq, _attention_of(spec).heads)


def _attention_branch(spec: UnitSpec, z: Tensor, o: Tensor, gate: Tensor | None, linears: Linears) -> Tensor:
    """The branch's input z, attention's output o, and a gate of its elements -> the branch."""
    names = spec.config.family.linears
    if "head_gate" in names:
        gate = linears[names["head_gate"]](z)
    if gate is not None:
        o = ops.sigmoid_gate(o, gate)
    return linears[names["o"]](o)


def _attention_settings(spec: UnitSpec, weights: Weights) -> tuple[int, int, int, float, float, Tensor | None]:
    """Returns the arguments of attention after q, k, v, caches and positions."""
    a, sinks = _attention_of(spec), spec.config.family.sinks
    return a.heads, a.kv_heads, a.window, a.scale, a.softcap, None if sinks is None else weights[sinks]


def attn(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    side: list[Tensor],
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, ...]:
    """x [T, hidden] -> x + attention(x) [T, hidden], and k and v [T, keys] if the unit gives them. `side` has those of
    an earlier unit if it takes them."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears = _linears(spec, named, lora)
    z = _branch_input(spec, x, named)
    gate = None
    if spec.side == "takes":
        q, (k, v) = _queries(spec, z, positions, inv_freq, named, linears), side
    else:
        q, k, v, gate = _qkv(spec, z, positions, inv_freq, named, linears)
    o, _ = ops.attention(q, k, v, positions, *_attention_settings(spec, named))
    y = _residual(spec, x, _attention_branch(spec, z, o, gate, linears), named)
    return (y, k, v) if spec.side == "gives" else (y,)


def attn_decode(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    side: list[Tensor],
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, ...]:
    """Generation: like `attn`, after positions[0] cached tokens. Also returns the keys and values to append, unless
    they are those of an earlier unit, whose caches these are then."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears = _linears(spec, named, lora)
    z = _branch_input(spec, x, named)
    gate = None
    if spec.side == "takes":
        q, (k, v) = _queries(spec, z, positions, inv_freq, named, linears), side
    else:
        q, k, v, gate = _qkv(spec, z, positions, inv_freq, named, linears)
    o = ops.attention_decode(q, k, v, k_cache, v_cache, positions, *_attention_settings(spec, named))
    y = _residual(spec, x, _attention_branch(spec, z, o, gate, linears), named)
    return (y,) if spec.side == "takes" else (y, k, v)


def conv(spec: UnitSpec, x: Tensor, positions: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + gated short convolution(x) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    bcx = linears[names["in"]](_branch_input(spec, x, named))
    return _residual(spec, x, linears[names["out"]](ops.short_conv(bcx, named[TAPS], positions)), named)


def conv_decode(
    spec: UnitSpec, x: Tensor, positions: Tensor, state: Tensor, weights: list[Tensor], lora: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Generation: like `conv`, after the tokens of `state`. Also returns the new state."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    bcx = linears[names["in"]](_branch_input(spec, x, named))
    y, state = ops.short_conv_decode(bcx, named[TAPS], state, positions)
    return _residual(spec, x, linears[names["out"]](y), named), state


_DELTA_ROLES = ("gate", "qkvz", "ba", "qkv", "q", "k", "v", "beta", "decay")


def _delta_projections(spec: UnitSpec, x: Tensor, weights: Weights, linears: Linears) -> list[Tensor]:
    """Returns the gate, and q k v, beta and decay as `delta_net` takes them."""
    names, z = spec.config.family.linears, _branch_input(spec, x, weights)
    y = {role: linears[names[f"delta_{role}"]](z) for role in _DELTA_ROLES if f"delta_{role}" in names}
    if "q" in y:
        y["qkv"] = ops.join(y["q"], ops.join(y["k"], y["v"], 1), 1)
    if "qkvz" in y:
        y["qkv"], y["gate"] = _split_key_heads(spec.config, y["qkvz"])
        y["beta"], y["decay"] = ops.split(y["ba"], *_value_heads(spec.config))
    return [y[role] for role in ("gate", "qkv", "beta", "decay")]


def _value_heads(c: ModelConfig) -> tuple[int, int]:
    """Returns the number of key heads, and the number of value heads of each."""
    return c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads


def _split_key_heads(c: ModelConfig, qkvz: Tensor) -> tuple[Tensor, Tensor]:
    """q, k, v and gate of each key head in turn [T, columns] -> q k v, each of all heads, and the gate."""
    heads, values = _value_heads(c)
    q, rest = ops.split(qkvz, heads, c.linear_key_head_dim)
    k, rest = ops.split(rest, heads, c.linear_key_head_dim)
    v, gate = ops.split(rest, heads, values * c.linear_value_head_dim)
    return ops.join(q, ops.join(k, v, 1), 1), gate


def _delta_output(spec: UnitSpec, x: Tensor, o: Tensor, gate: Tensor, weights: Weights, linears: Linears) -> Tensor:
    """x and the delta net's output o -> the unit's output: a norm of each head, times silu(gate)."""
    c = spec.config
    normed, _ = ops.rms_norm(o, weights[f"{c.family.delta_norm}.weight"], c.delta_norm_eps or c.rms_norm_eps)
    return _residual(spec, x, linears[c.family.linears["delta_out"]](ops.swiglu(gate, normed)), weights)


def delta(spec: UnitSpec, x: Tensor, positions: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + gated delta net(x) [T, hidden]."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    gate, *qkv = _delta_projections(spec, x, named, linears)
    frozen = [named[name] for name in (DELTA_TAPS, DELTA_DECAY, DELTA_BIAS)]
    o = ops.delta_net(*qkv, *frozen, positions, c.linear_num_key_heads, c.linear_key_head_dim, c.delta_beta_scale)
    return _delta_output(spec, x, o, gate, named, linears)


def delta_decode(
    spec: UnitSpec, x: Tensor, positions: Tensor, state: Tensor, weights: list[Tensor], lora: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Generation: like `delta`, after the tokens of `state`. Also returns the new state."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    gate, *qkv = _delta_projections(spec, x, named, linears)
    frozen = [named[name] for name in (DELTA_TAPS, DELTA_DECAY, DELTA_BIAS)]
    heads = (c.linear_num_key_heads, c.linear_key_head_dim)
    o, state = ops.delta_net_decode(*qkv, *frozen, state, positions, *heads, c.delta_beta_scale)
    return _delta_output(spec, x, o, gate, named, linears), state


def _mamba_vector(spec: UnitSpec, weights: Weights, name: str) -> Tensor:
    return weights[f"{spec.config.family.mamba}.{name}"]


def _mamba_vectors(spec: UnitSpec, weights: Weights) -> list[Tensor]:
    """Returns the frozen vectors as `mamba2` takes them."""
    names = (MAMBA_TAPS, MAMBA_CONV_BIAS, MAMBA_DECAY, MAMBA_BIAS, MAMBA_SKIP)
    return [_mamba_vector(spec, weights, name) for name in names]


def _mamba_projections(spec: UnitSpec, z: Tensor, weights: Weights, linears: Linears) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gate, and xbc and dt as `mamba2` takes them."""
    values, channels = mamba_widths(spec.config)
    projected = linears[spec.config.family.linears["mamba_in"]](z)
    if f"{spec.config.family.mamba}.{MAMBA_IN_SCALE}" in weights:
        projected = ops.affine(projected, _mamba_vector(spec, weights, MAMBA_IN_SCALE))
    gate, rest = ops.split(projected, 1, values)
    return gate, *ops.split(rest, 1, channels)


def _mamba_branch(spec: UnitSpec, y: Tensor, gate: Tensor, weights: Weights, linears: Linears) -> Tensor:
    """The recurrence's output y -> the branch: of y silu(gate), which is normalized by groups if the family does."""
    gated = ops.swiglu(gate, y)
    if spec.config.family.mamba_norm:
        normed, _ = ops.rms_norm(gated, _mamba_vector(spec, weights, MAMBA_ONES), spec.config.rms_norm_eps)
        gated = ops.affine(normed, _mamba_vector(spec, weights, MAMBA_NORM))
    return linears[spec.config.family.linears["mamba_out"]](gated)


def mamba(spec: UnitSpec, x: Tensor, positions: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + Mamba-2(x) [T, hidden]."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    gate, xbc, dt = _mamba_projections(spec, _branch_input(spec, x, named), named, linears)
    y = ops.mamba2(xbc, dt, *_mamba_vectors(spec, named), positions, c.mamba_n_groups, c.mamba_d_state)
    return _residual(spec, x, _mamba_branch(spec, y, gate, named, linears), named)


def mamba_decode(
    spec: UnitSpec, x: Tensor, positions: Tensor, state: Tensor, weights: list[Tensor], lora: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """Generation: like `mamba`, after the tokens of `state`. Also returns the new state."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    gate, xbc, dt = _mamba_projections(spec, _branch_input(spec, x, named), named, linears)
    frozen = _mamba_vectors(spec, named)
    y, state = ops.mamba2_decode(xbc, dt, *frozen, state, positions, c.mamba_n_groups, c.mamba_d_state)
    return _residual(spec, x, _mamba_branch(spec, y, gate, named, linears), named), state


def _hybrid_sum(spec: UnitSpec, x: Tensor, attention: Tensor, recurrent: Tensor, weights: Weights) -> Tensor:
    c = spec.config
    attention = ops.scale(attention, c.attention_out_multiplier)
    return _residual(spec, x, ops.add(attention, ops.scale(recurrent, c.mamba_out_multiplier)), weights)


def hybrid(
    spec: UnitSpec, x: Tensor, positions: Tensor, inv_freq: Tensor | None, weights: list[Tensor], lora: list[Tensor]
) -> Tensor:
    """x [T, hidden] -> x + attention(x) + Mamba-2(x) [T, hidden], with one norm before both."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    z = _branch_input(spec, x, named)
    q, k, v, head_gate = _qkv(spec, z, positions, inv_freq, named, linears)
    o, _ = ops.attention(q, k, v, positions, *_attention_settings(spec, named))
    attention = _attention_branch(spec, z, o, head_gate, linears)
    gate, xbc, dt = _mamba_projections(spec, z, named, linears)
    y = ops.mamba2(xbc, dt, *_mamba_vectors(spec, named), positions, c.mamba_n_groups, c.mamba_d_state)
    return _hybrid_sum(spec, x, attention, _mamba_branch(spec, y, gate, named, linears), named)


def hybrid_decode(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    held: list[Tensor],
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, ...]:
    """Generation: like `hybrid`, with both caches and the state that it `held`. Also returns the keys and values to
    append, and the new state."""
    named, c = dict(zip(spec.weights, weights, strict=True)), spec.config
    linears = _linears(spec, named, lora)
    k_cache, v_cache, state = held
    z = _branch_input(spec, x, named)
    q, k, v, head_gate = _qkv(spec, z, positions, inv_freq, named, linears)
    o = ops.attention_decode(q, k, v, k_cache, v_cache, positions, *_attention_settings(spec, named))
    attention = _attention_branch(spec, z, o, head_gate, linears)
    gate, xbc, dt = _mamba_projections(spec, z, named, linears)
    frozen = _mamba_vectors(spec, named)
    y, state = ops.mamba2_decode(xbc, dt, *frozen, state, positions, c.mamba_n_groups, c.mamba_d_state)
    return _hybrid_sum(spec, x, attention, _mamba_branch(spec, y, gate, named, linears), named), k, v, state


def mlp(spec: UnitSpec, x: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + mlp(x) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    z = _branch_input(spec, x, named)
    y = _mlp_branch(spec, z, _linears(spec, named, lora), "", spec.config.intermediate_size)
    return _residual(spec, x, ops.scale(y, spec.config.mlp_down_multiplier), named)


def _mlp_branch(spec: UnitSpec, z: Tensor, linears: Linears, prefix: str, inner: int) -> Tensor:
    """The branch of an MLP, or of the one beside experts, whose roles have the prefix `shared_`."""
    names = spec.config.family.linears
    with annotate({FACTOR: True}):
        if f"{prefix}gate_up" in names:
            factors = ops.split(linears[names[f"{prefix}gate_up"]](z), 1, inner)
        else:
            roles = (f"{prefix}gate", f"{prefix}up")
            factors = tuple(linears[names[role]](z) for role in roles if role in names)
    if spec.config.mlp_gate_multiplier != 1:
        factors = (ops.scale(factors[0], spec.config.mlp_gate_multiplier), *factors[1:])
    product = _gated(spec, *factors) if len(factors) == 2 else _ACTIVATIONS[spec.config.family.activation](*factors)
    return linears[names[f"{prefix}down"]](product)


def experts(spec: UnitSpec, x: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden] -> x + the weighted sum of a few experts(x) [T, hidden], and of the MLP beside them if there is
    one."""
    named, c, family = dict(zip(spec.weights, weights, strict=True)), spec.config, spec.config.family
    z, linears = _branch_input(spec, x, named), _linears(spec, named, lora)
    logits = linears[family.linears["router"]](z)
    matrices: list[Any] = []
    adapters: list[Tensor | None] = []
    for linear in spec.linears[1:3]:
        matrices += [named[f"{linear.name}.weight"], linear.format, linear.out_features]
        adapters += _adapters(spec, lora)[linear.name]
    bias = None if family.expert_bias is None else named[family.expert_bias]
    numbers = (c.num_experts_per_tok, family.sigmoid_router, c.norm_topk_prob, c.routed_scaling_factor)
    y = ops.experts(z, logits, bias, *matrices, *numbers, *adapters, spec.lora_scale)
    if c.shared_expert_intermediate_size:
        shared = _mlp_branch(spec, z, linears, "shared_", c.shared_expert_intermediate_size)
        if "shared_router" in family.linears:
            shared = ops.sigmoid_gate(shared, linears[family.linears["shared_router"]](z))
        y = ops.add(y, shared)
    return _residual(spec, x, y, named)


def per_layer(spec: UnitSpec, x: Tensor, e: Tensor, weights: list[Tensor], lora: list[Tensor]) -> Tensor:
    """x [T, hidden], per-layer embeddings e [T, width] -> x + W_out(act(W_gate x) * e) [T, hidden]."""
    named = dict(zip(spec.weights, weights, strict=True))
    linears, names = _linears(spec, named, lora), spec.config.family.linears
    exact, _ = _GATES[spec.config.family.activation]
    gated = exact(linears[names["per_layer_gate"]](_branch_input(spec, x, named)), e)
    return _residual(spec, x, linears[names["per_layer_out"]](gated), named)


# The functions of the types of units that mix tokens, except attention: forward and decode.
_STATEFUL: dict[str, tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]] = {
    "conv": (conv, conv_decode),
    "delta": (delta, delta_decode),
    "mamba": (mamba, mamba_decode),
}


def forward(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor | None,
    side: list[Tensor],
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, ...]:
    """Any unit: x [T, hidden] -> y [T, hidden], and the keys and values that it gives. Units that do not mix tokens
    need no positions."""
    if spec.type == "mlp":
        return (mlp(spec, x, weights, lora),)
    if spec.type == "experts":
        return (experts(spec, x, weights, lora),)
    if spec.type == "per_layer":
        (e,) = side
        return (per_layer(spec, x, e, weights, lora),)
    assert positions is not None
    if spec.type == "attn":
        return attn(spec, x, positions, side, inv_freq, weights, lora)
    if spec.type == "hybrid":
        return (hybrid(spec, x, positions, inv_freq, weights, lora),)
    return (_STATEFUL[spec.type][0](spec, x, positions, weights, lora),)


def decode(
    spec: UnitSpec,
    x: Tensor,
    positions: Tensor,
    held: list[Tensor],
    side: list[Tensor],
    inv_freq: Tensor | None,
    weights: list[Tensor],
    lora: list[Tensor],
) -> tuple[Tensor, ...]:
    """Any unit that mixes tokens, in generation, with the two caches or the state that it `held`. Returns y, and the
    keys and values to append, or the new state."""
    if spec.type == "attn":
        k_cache, v_cache = held
        return attn_decode(spec, x, positions, k_cache, v_cache, side, inv_freq, weights, lora)
    if spec.type == "hybrid":
        return hybrid_decode(spec, x, positions, held, inv_freq, weights, lora)
    return _STATEFUL[spec.type][1](spec, x, positions, *held, weights, lora)


def embed(config: ModelConfig, fmt: str, tokens: Tensor, table: Tensor) -> Tensor:
    """tokens [T] -> x [T, hidden]."""
    return ops.packed_embedding(tokens, table, fmt, config.vocab_size, config.embedding_scale)


def per_layer_rows(config: ModelConfig, fmt: str, rows: Tensor, table: Tensor) -> Tensor:
    """Row numbers of the table of per-layer embeddings [n] -> the tokens' part of them [n, width]."""
    width, count = config.hidden_size_per_layer_input, config.vocab_size * config.num_hidden_layers
    return ops.packed_embedding(rows, table, fmt, count, math.sqrt(width / 2))


def per_layer_inputs(config: ModelConfig, fmt: str, x: Tensor, e: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Embeddings x [T, hidden] and the tokens' part e of a layer [T, width] -> its per-layer embeddings [T, width]:
    (rms(x W^T / sqrt(hidden)) norm + e) / sqrt(2). The factor of e is in e, and that of the norm in its weight."""
    y = ops.packed_linear(x, weight, fmt, config.hidden_size_per_layer_input, None, None, 0.0)
    normed, _ = ops.rms_norm(y, norm, config.rms_norm_eps * config.hidden_size)
    return ops.add(normed, e)


def head(
    config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """x [T, hidden], targets [T] -> losses [T], 0 for targets of -100, and their gradients dx [T, hidden]."""
    z, rstd = ops.rms_norm(x, norm, config.block_norm_eps)
    losses, dz = ops.linear_cross_entropy(z, weight, fmt, config.vocab_size, targets, config.final_logit_softcapping)
    return losses, ops.rms_norm_backward(dz, x, norm, rstd)


def head_loss(config: ModelConfig, fmt: str, x: Tensor, targets: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """Evaluation: returns only the losses [T]."""
    z, _ = ops.rms_norm(x, norm, config.block_norm_eps)
    return ops.linear_cross_entropy_loss(z, weight, fmt, config.vocab_size, targets, config.final_logit_softcapping)


def logits(config: ModelConfig, fmt: str, x: Tensor, norm: Tensor, weight: Tensor) -> Tensor:
    """x [T, hidden] -> logits [T, vocab]; the runtime calls it on a few rows at a time."""
    z, _ = ops.rms_norm(x, norm, config.block_norm_eps)
    y = ops.packed_linear(z, weight, fmt, config.vocab_size, None, None, 0.0)
    return ops.softcap(y, config.final_logit_softcapping) if config.final_logit_softcapping else y
