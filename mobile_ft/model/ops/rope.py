"""`rope`: rotary position embedding in Hugging Face's half-split form, on [T, heads * dim].

Pair (i, i + dim / 2) of every head is rotated by positions[t] * inv_freq[i]; the backward rotates by the opposite
angle.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, positions: Tensor, inv_freq: Tensor, heads: int, inverse: bool) -> Tensor:
    half = inv_freq.shape[0]
    angle = positions[:, None].to(inv_freq.dtype) * inv_freq
    cos, sin = angle.cos()[:, None].to(x.dtype), angle.sin()[:, None].to(x.dtype)
    if inverse:
        sin = -sin
    pairs = x.reshape(x.shape[0], heads, 2, half)
    lower, upper = pairs[:, :, 0], pairs[:, :, 1]
    return torch.stack([lower * cos - upper * sin, upper * cos + lower * sin], dim=2).reshape(x.shape)


def _fake(x: Tensor, positions: Tensor, inv_freq: Tensor, heads: int, inverse: bool) -> Tensor:
    return torch.empty_like(x)


rope = define_op(
    "rope(Tensor x, Tensor positions, Tensor inv_freq, int heads, bool inverse) -> Tensor", _reference, _fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, positions, inv_freq, ctx.heads, ctx.inverse = inputs
    ctx.save_for_backward(positions, inv_freq)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    positions, inv_freq = ctx.saved_tensors
    return rope(dy, positions, inv_freq, ctx.heads, not ctx.inverse), None, None, None, None


define_autograd("rope", _autograd, _setup)
