"""`delta_net`: the gated delta rule over packed rows (arXiv 2412.06464), with the short convolution before it.

qkv [T, 2 n dk + m dv] has the queries and keys of n heads and the values of m heads; b and a are [T, m]. taps [L, C]
are those of a convolution of each column, oldest token first:

    u[t] = silu(sum over j of taps[L - 1 - j] * qkv[t - j]),  j = 0 .. min(L - 1, positions[t])

u is split into q, k [n, dk] and v [m, dv]. Each q and k is divided by its length, q also by sqrt(dk). Value head i uses
key head i // (m / n). With beta = beta_scale * sigmoid(b) and decay = exp(-exp(a_log) * softplus(a + dt_bias)), each
value head has a state H [dk, dv], which is 0 where positions[t] is 0:

    H <- decay[t] H;  H <- H + k[t] (beta[t] (v[t] - H^T k[t]))^T;  o[t] = H^T q[t]

The kernel computes chunks of tokens with matrix products and a triangular solve. taps, a_log and dt_bias are frozen.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.causal_conv import causal_conv
from mobile_ft.model.ops.define import define_autograd, define_op

_EPS = 1e-6  # within the square root of a length


def _unit_length(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + _EPS)


def _recurrence(
    u: Tensor,
    b: Tensor,
    a: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    h: Tensor,
    positions: Tensor,
    key_heads: int,
    key_dim: int,
    beta_scale: float,
) -> tuple[Tensor, Tensor]:
    """Returns o [T, m dv] and the last state [m, dk, dv], token by token from the state h."""
    t, heads = b.shape
    keys = key_heads * key_dim
    q, k, v = u.split([keys, keys, u.shape[1] - 2 * keys], 1)
    q, k = (_unit_length(x.reshape(t, key_heads, key_dim)) for x in (q, k))
    q, k = (x.repeat_interleave(heads // key_heads, 1) for x in (q * key_dim**-0.5, k))
    v = v.reshape(t, heads, -1)
    beta = beta_scale * b.sigmoid()
    decay = torch.exp(-a_log.exp() * torch.nn.functional.softplus(a + dt_bias))
    o = []
    for i in range(t):
        h = (h if positions[i] > 0 else torch.zeros_like(h)) * decay[i][:, None, None]
        error = v[i] - torch.einsum("hkv,hk->hv", h, k[i])
        h = h + torch.einsum("hk,hv->hkv", k[i], beta[i][:, None] * error)
        o.append(torch.einsum("hkv,hk->hv", h, q[i]))
    return torch.stack(o).reshape(t, -1), h


def _value_dim(qkv: Tensor, b: Tensor, key_heads: int, key_dim: int) -> int:
    return (qkv.shape[1] - 2 * key_heads * key_dim) // b.shape[1]


def _reference(
    qkv: Tensor,
    b: Tensor,
    a: Tensor,
    taps: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    positions: Tensor,
    key_heads: int,
    key_dim: int,
    beta_scale: float,
) -> Tensor:
    taps, a_log, dt_bias = (x.to(qkv.dtype) for x in (taps, a_log, dt_bias))
    before = qkv.new_zeros(taps.shape[0] - 1, qkv.shape[1])
    u = torch.nn.functional.silu(causal_conv(qkv, before, taps, positions))
    h = qkv.new_zeros(b.shape[1], key_dim, _value_dim(qkv, b, key_heads, key_dim))
    return _recurrence(u, b, a, a_log, dt_bias, h, positions, key_heads, key_dim, beta_scale)[0]


def _fake(qkv: Tensor, b: Tensor, a: Tensor, *rest: Any) -> Tensor:
    key_heads, key_dim, _ = rest[-3:]
    return qkv.new_empty((qkv.shape[0], qkv.shape[1] - 2 * key_heads * key_dim))


_TENSORS = "Tensor qkv, Tensor b, Tensor a, Tensor taps, Tensor a_log, Tensor dt_bias"
_NUMBERS = "Tensor positions, int key_heads, int key_dim, float beta_scale"
delta_net = define_op(f"delta_net({_TENSORS}, {_NUMBERS}) -> Tensor", _reference, _fake)


def _backward_reference(do: Tensor, qkv: Tensor, b: Tensor, a: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    with torch.enable_grad():
        qkv, b, a = (x.detach().requires_grad_() for x in (qkv, b, a))
        dqkv, db, da = torch.autograd.grad(_reference(qkv, b, a, *rest), [qkv, b, a], do)
    return dqkv, db, da


def _backward_fake(do: Tensor, qkv: Tensor, b: Tensor, a: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(qkv), torch.empty_like(b), torch.empty_like(a)


delta_net_backward = define_op(
    f"delta_net_backward(Tensor do, {_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor, Tensor)",
    _backward_reference,
    _backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.key_heads, ctx.key_dim, ctx.beta_scale = inputs
    ctx.save_for_backward(*tensors)


def _autograd(ctx: Any, do: Tensor) -> tuple[Any, ...]:
    gradients = delta_net_backward(do, *ctx.saved_tensors, ctx.key_heads, ctx.key_dim, ctx.beta_scale)
    return *gradients, *[None] * 7


define_autograd("delta_net", _autograd, _setup)


def _decode_reference(
    qkv: Tensor,
    b: Tensor,
    a: Tensor,
    taps: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state: Tensor,
    positions: Tensor,
    key_heads: int,
    key_dim: int,
    beta_scale: float,
) -> tuple[Tensor, Tensor]:
    kept = taps.shape[0] - 1
    before = state[: kept * qkv.shape[1]].reshape(kept, -1)
    h = state[kept * qkv.shape[1] :].reshape(b.shape[1], key_dim, -1)
    u = torch.nn.functional.silu(causal_conv(qkv, before, taps, positions))
    o, h = _recurrence(u, b, a, a_log, dt_bias, h, positions, key_heads, key_dim, beta_scale)
    tokens = torch.cat([before, qkv])
    return o, torch.cat([tokens[len(tokens) - kept :].reshape(-1), h.reshape(-1)])


def _decode_fake(qkv: Tensor, b: Tensor, a: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    state = rest[3]
    return _fake(qkv, b, a, *rest), torch.empty_like(state)


# Generation: T new tokens of one sequence. `state` has qkv of the L - 1 tokens before them, then H; the second output
# is the new state.
delta_net_decode = define_op(
    f"delta_net_decode({_TENSORS}, Tensor state, {_NUMBERS}) -> (Tensor, Tensor)",
    _decode_reference,
    _decode_fake,
)
