"""Norms in the memory-sharing form (MS-BP, arXiv 2406.16282): their backward needs their output, not their input.

With r the inverse deviation of a row, z = x r (RMSNorm) or (x - mean x) r (LayerNorm):

    dx = r (dz - z mean(dz z))                 RMSNorm
    dx = r (dz - mean dz - z mean(dz z))       LayerNorm
"""

from typing import Any

import torch
from torch import Tensor


class _MSNorm(torch.autograd.Function):
    """z, of x [..., d], and what its backward needs: z itself and r [..., 1] in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float, centred: bool) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        if centred:
            wide = wide - wide.mean(-1, keepdim=True)
        r = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        z = (wide * r).to(x.dtype)
        ctx.save_for_backward(z, r)
        ctx.centred = centred
        return z

    @staticmethod
    def backward(ctx: Any, dz: Tensor) -> tuple[Any, ...]:
        z, r = ctx.saved_tensors
        wide, z_wide = dz.to(r.dtype), z.to(r.dtype)
        dx = wide - z_wide * (wide * z_wide).mean(-1, keepdim=True)
        if ctx.centred:
            dx = dx - wide.mean(-1, keepdim=True)
        return (r * dx).to(dz.dtype), None, None


def ms_rms_norm(x: Tensor, eps: float) -> Tensor:
    """x r with r = rsqrt(mean(x^2) + eps), over the last dimension, in float32 within."""
    return _MSNorm.apply(x, eps, False)


def ms_layer_norm(x: Tensor, eps: float) -> Tensor:
    """(x - mean x) r with r = rsqrt(var(x) + eps), over the last dimension, in float32 within."""
    return _MSNorm.apply(x, eps, True)
