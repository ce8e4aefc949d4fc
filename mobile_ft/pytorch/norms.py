"""Norms in the memory-sharing form (MS-BP, arXiv 2406.16282): their backward needs their output, not their input.

With r the inverse deviation of a row, z = x r (RMSNorm) or (x - mean x) r (LayerNorm) and y = z w + b:

    dx = r (dz - z mean(dz z))                 RMSNorm
    dx = r (dz - mean dz - z mean(dz z))       LayerNorm

with dz = dy w. Under autocast, z is kept in the dtype in which linear layers compute.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.pytorch.recompute_norms import remember, times


class _MSNorm(torch.autograd.Function):
    """Computes y from x [..., d]. Saves z, r [..., 1] in float32 or better, and the weight for the backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool, made: list[Tensor]
    ) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        if centred:
            wide = wide - wide.mean(-1, keepdim=True)
        r = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        z = (wide * r).to(x.dtype)
        kept = z.to(_kept_dtype(x))
        made.append(kept)
        ctx.save_for_backward(kept, r, weight)
        ctx.centred, ctx.dtype, ctx.bias_dtype = centred, x.dtype, None if bias is None else bias.dtype
        y = times(z, weight, bias)
        # As LayerNorm on the CPU. Under autocast on a GPU, LayerNorm returns float32.
        return y.to(x.dtype) if centred and x.is_cpu else y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        kept, r, weight = ctx.saved_tensors
        dz, z = dy.to(r.dtype), kept.to(r.dtype)
        rows = tuple(range(dy.dim() - 1))
        dw = db = None
        if ctx.needs_input_grad[1]:
            dw = (dz * z).sum(rows).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            db = dz.sum(rows).to(ctx.bias_dtype)
        if weight is not None:
            dz = dz * weight.to(r.dtype)
        dx = dz - z * (dz * z).mean(-1, keepdim=True)
        if ctx.centred:
            dx = dx - dz.mean(-1, keepdim=True)
        return (r * dx).to(ctx.dtype), dw, db, None, None, None


def _kept_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype of x, or under autocast that of linear layers."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _ms_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool) -> Tensor:
    made: list[Tensor] = []
    y: Tensor = _MSNorm.apply(x, weight, bias, eps, centred, made)
    remember(y, made[0], weight, bias)
    return y


def ms_rms_norm(x: Tensor, eps: float, weight: Tensor | None = None) -> Tensor:
    """Returns x r w with r = rsqrt(mean(x^2) + eps) over the last dimension. Computes x r in float32."""
    return _ms_norm(x, weight, None, eps, False)


def ms_layer_norm(x: Tensor, eps: float, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Returns (x - mean x) r w + b with r = rsqrt(var(x) + eps) over the last dimension. Computes (x - mean x) r in
    float32."""
    return _ms_norm(x, weight, bias, eps, True)
