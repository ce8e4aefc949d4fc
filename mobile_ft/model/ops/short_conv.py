"""`short_conv`: LFM2's gated short convolution over packed rows (arXiv 2511.23404), on bcx [T, 3 d] = (b, c, x).

    y[t] = c[t] * sum over j of taps[L - 1 - j] * (b * x)[t - j],  j = 0 .. min(L - 1, positions[t])

taps is [L, d], oldest token first. A position of 0 starts a row, and rows do not see each other. The taps are frozen.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _delayed(u: Tensor, positions: Tensor, j: int) -> Tensor:
    """Returns u[t - j] for the last T tokens of u, and 0 before the first token of a row."""
    t = positions.shape[0]
    padded = torch.cat([u.new_zeros(j, u.shape[1]), u])
    return padded[u.shape[0] - t : u.shape[0]] * (positions >= j)[:, None].to(u.dtype)


def _convolved(u: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    return sum((taps[-1 - j] * _delayed(u, positions, j) for j in range(taps.shape[0])), torch.zeros(()).to(u))


def _reference(bcx: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    b, c, x = bcx.chunk(3, 1)
    return c * _convolved(b * x, taps.to(bcx.dtype), positions)


def _fake(bcx: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    return bcx.new_empty((bcx.shape[0], taps.shape[1]))


short_conv = define_op("short_conv(Tensor bcx, Tensor taps, Tensor positions) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, bcx: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    b, c, x = bcx.chunk(3, 1)
    taps, t = taps.to(bcx.dtype), bcx.shape[0]
    dv = dy * c
    du = torch.zeros_like(dv)
    for j in range(min(taps.shape[0], t)):
        du[: t - j] += (taps[-1 - j] * dv * (positions >= j)[:, None].to(dv.dtype))[j:]
    return torch.cat([du * x, dy * _convolved(b * x, taps, positions), du * b], 1)


def _backward_fake(dy: Tensor, bcx: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    return torch.empty_like(bcx)


short_conv_backward = define_op(
    "short_conv_backward(Tensor dy, Tensor bcx, Tensor taps, Tensor positions) -> Tensor",
    _backward_reference,
    _backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return short_conv_backward(dy, *ctx.saved_tensors), None, None


define_autograd("short_conv", _autograd, _setup)


def _decode_reference(bcx: Tensor, taps: Tensor, state: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    b, c, x = bcx.chunk(3, 1)
    u = torch.cat([state, b * x])
    return c * _convolved(u, taps, positions), u[u.shape[0] - state.shape[0] :].clone()


def _decode_fake(bcx: Tensor, taps: Tensor, state: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return bcx.new_empty((bcx.shape[0], taps.shape[1])), torch.empty_like(state)


# Generation: T new tokens of one sequence. `state` [L - 1, d] has b * x of the tokens before them; the second output is
# the new state.
short_conv_decode = define_op(
    "short_conv_decode(Tensor bcx, Tensor taps, Tensor state, Tensor positions) -> (Tensor, Tensor)",
    _decode_reference,
    _decode_fake,
)
