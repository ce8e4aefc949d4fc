"""`rope`: rotary position embedding, on [T, heads * dim].

Each head has `n = len(inv_freq)` pairs, which are rotated by positions[t] * inv_freq[i] and multiplied by `factor`.
Pair i is (i, i + n), or (2 i, 2 i + 1) if `interleaved`. The numbers of a head after its 2 n first ones stay as they
are. The backward rotates by the opposite angle.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(
    x: Tensor, positions: Tensor, inv_freq: Tensor, heads: int, inverse: bool, interleaved: bool, factor: float
) -> Tensor:
    n = inv_freq.shape[0]
    angle = positions[:, None].to(inv_freq.dtype) * inv_freq
    cos, sin = factor * angle.cos()[:, None].to(x.dtype), factor * angle.sin()[:, None].to(x.dtype)
    if inverse:
        sin = -sin
    y = x.reshape(x.shape[0], heads, -1).clone()
    first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if interleaved else (slice(0, n), slice(n, 2 * n))
    a, b = y[..., first].clone(), y[..., second].clone()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y.reshape(x.shape)


def _fake(
    x: Tensor, positions: Tensor, inv_freq: Tensor, heads: int, inverse: bool, interleaved: bool, factor: float
) -> Tensor:
    return torch.empty_like(x)


rope = define_op(
    "rope(Tensor x, Tensor positions, Tensor inv_freq, int heads, bool inverse, bool interleaved, float factor)"
    " -> Tensor",
    _reference,
    _fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, positions, inv_freq, ctx.heads, ctx.inverse, ctx.interleaved, ctx.factor = inputs
    ctx.save_for_backward(positions, inv_freq)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    positions, inv_freq = ctx.saved_tensors
    dx = rope(dy, positions, inv_freq, ctx.heads, not ctx.inverse, ctx.interleaved, ctx.factor)
    return dx, None, None, None, None, None, None


define_autograd("rope", _autograd, _setup)
