"""`mamba2`: Mamba-2's state space layer over packed rows (arXiv 2405.21060), with the short convolution before it.

xbc [T, h d + 2 g n] has x of h heads of d, then B and C of g groups of n; dt is [T, h]. taps [L, C] are those of a
convolution of each column, oldest token first, with a bias:

    u[t] = silu(bias + sum over j of taps[L - 1 - j] * xbc[t - j]),  j = 0 .. min(L - 1, positions[t])

u is split into x [h, d], B and C [g, n]. Head i uses group i // (h / g). With step = softplus(dt + dt_bias) and decay =
exp(-exp(a_log) * step), each head has a state H [n, d], which is 0 where positions[t] is 0:

    H <- decay[t] H + B[t] (step[t] x[t])^T;  y[t] = H^T C[t] + skip x[t]

The kernel computes chunks of tokens with matrix products. taps, bias, a_log, dt_bias and skip are frozen.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.causal_conv import causal_conv
from mobile_ft.model.ops.define import define_autograd, define_op


def _recurrence(
    u: Tensor,
    dt: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    skip: Tensor,
    h: Tensor,
    positions: Tensor,
    groups: int,
    state_size: int,
) -> tuple[Tensor, Tensor]:
    """Returns y [T, h d] and the last state [h, n, d], token by token from the state h."""
    t, heads = dt.shape
    width = groups * state_size
    x, b, c = u.split([u.shape[1] - 2 * width, width, width], 1)
    x = x.reshape(t, heads, -1)
    b, c = (y.reshape(t, groups, state_size).repeat_interleave(heads // groups, 1) for y in (b, c))
    step = torch.nn.functional.softplus(dt + dt_bias)
    decay = torch.exp(-a_log.exp() * step)
    y = []
    for i in range(t):
        h = (h if positions[i] > 0 else torch.zeros_like(h)) * decay[i][:, None, None]
        h = h + torch.einsum("hn,hd->hnd", b[i], step[i][:, None] * x[i])
        y.append(torch.einsum("hnd,hn->hd", h, c[i]) + skip[:, None] * x[i])
    return torch.stack(y).reshape(t, -1), h


def _reference(
    xbc: Tensor,
    dt: Tensor,
    taps: Tensor,
    bias: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    skip: Tensor,
    positions: Tensor,
    groups: int,
    state_size: int,
) -> Tensor:
    taps, bias, a_log, dt_bias, skip = (x.to(xbc.dtype) for x in (taps, bias, a_log, dt_bias, skip))
    before = xbc.new_zeros(taps.shape[0] - 1, xbc.shape[1])
    u = torch.nn.functional.silu(causal_conv(xbc, before, taps, positions) + bias)
    dim = (xbc.shape[1] - 2 * groups * state_size) // dt.shape[1]
    h = xbc.new_zeros(dt.shape[1], state_size, dim)
    return _recurrence(u, dt, a_log, dt_bias, skip, h, positions, groups, state_size)[0]


def _fake(xbc: Tensor, *rest: Any) -> Tensor:
    groups, state_size = rest[-2:]
    return xbc.new_empty((xbc.shape[0], xbc.shape[1] - 2 * groups * state_size))


_TENSORS = "Tensor xbc, Tensor dt, Tensor taps, Tensor bias, Tensor a_log, Tensor dt_bias, Tensor skip"
_NUMBERS = "Tensor positions, int groups, int state_size"
mamba2 = define_op(f"mamba2({_TENSORS}, {_NUMBERS}) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, xbc: Tensor, dt: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        xbc, dt = (x.detach().requires_grad_() for x in (xbc, dt))
        dxbc, ddt = torch.autograd.grad(_reference(xbc, dt, *rest), [xbc, dt], dy)
    return dxbc, ddt


def _backward_fake(dy: Tensor, xbc: Tensor, dt: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(xbc), torch.empty_like(dt)


mamba2_backward = define_op(
    f"mamba2_backward(Tensor dy, {_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor)", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.groups, ctx.state_size = inputs
    ctx.save_for_backward(*tensors)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    gradients = mamba2_backward(dy, *ctx.saved_tensors, ctx.groups, ctx.state_size)
    return *gradients, *[None] * 8


define_autograd("mamba2", _autograd, _setup)


def _decode_reference(
    xbc: Tensor,
    dt: Tensor,
    taps: Tensor,
    bias: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    skip: Tensor,
    state: Tensor,
    positions: Tensor,
    groups: int,
    state_size: int,
) -> tuple[Tensor, Tensor]:
    kept = taps.shape[0] - 1
    before = state[: kept * xbc.shape[1]].reshape(kept, -1)
    h = state[kept * xbc.shape[1] :].reshape(dt.shape[1], state_size, -1)
    u = torch.nn.functional.silu(causal_conv(xbc, before, taps, positions) + bias)
    y, h = _recurrence(u, dt, a_log, dt_bias, skip, h, positions, groups, state_size)
    tokens = torch.cat([before, xbc])
    return y, torch.cat([tokens[len(tokens) - kept :].reshape(-1), h.reshape(-1)])


def _decode_fake(xbc: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    state = rest[6]
    return _fake(xbc, *rest), torch.empty_like(state)


# Generation: T new tokens of one sequence. `state` has xbc of the L - 1 tokens before them, then H; the second output
# is the new state.
mamba2_decode = define_op(
    f"mamba2_decode({_TENSORS}, Tensor state, {_NUMBERS}) -> (Tensor, Tensor)", _decode_reference, _decode_fake
)
