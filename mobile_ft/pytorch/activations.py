"""Activations that keep 2 bits per element (Approx-BP, arXiv 2406.16282).

The forward is exact. The backward uses the derivative of h(x) = sum_i a_i max(x - c_i, 0) instead of the activation's.
It is 0, a1, a1 + a2 or 1, depending on the interval between the thresholds c that contains x.
"""

from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, silu

from mobile_ft.model.ops.glu_2bit import REGELU2, RESILU2, ReluCombination

_PER_BYTE = 4


def pack_2bit(codes: Tensor) -> Tensor:
    """Packs codes 0..3 of any shape as uint8 [ceil(n / 4)], the first code in the lowest bits."""
    fours = pad(codes.flatten(), (0, -codes.numel() % _PER_BYTE)).view(-1, _PER_BYTE)
    return fours[:, 0] | fours[:, 1] << 2 | fours[:, 2] << 4 | fours[:, 3] << 6


def unpack_2bit(packed: Tensor, shape: torch.Size) -> Tensor:
    """Unpacks the codes as int64 of the given shape."""
    codes = torch.stack([packed >> shift & 3 for shift in (0, 2, 4, 6)], dim=1)
    return codes.flatten()[: shape.numel()].view(shape).long()


class _Approximate(torch.autograd.Function):
    """Returns y, the activation of x, which is already computed, with the derivative of `h`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, h: ReluCombination) -> Tensor:
        codes = torch.zeros_like(x, dtype=torch.uint8)
        for threshold in h.c:
            codes += x > threshold
        ctx.save_for_backward(pack_2bit(codes))
        ctx.shape, ctx.h = x.shape, h
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        slopes = torch.tensor([*accumulate(ctx.h.a, initial=0.0)], dtype=dy.dtype, device=dy.device)
        return dy * slopes[unpack_2bit(ctx.saved_tensors[0], ctx.shape)], None, None


def approximate(x: Tensor, y: Tensor, h: ReluCombination) -> Tensor:
    """Returns `y`, a function of x, with the derivative of `h` at x as its gradient."""
    return _Approximate.apply(x, y.detach(), h)


class ReSiLU2(nn.Module):
    """SiLU with ReSiLU2's derivative."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = silu(x)
        return approximate(x, y, RESILU2)


class ReGELU2(nn.Module):
    """GELU, or its approximation by tanh, with ReGELU2's derivative."""

    def __init__(self, form: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = gelu(x, approximate=self.form)
        return approximate(x, y, REGELU2)
