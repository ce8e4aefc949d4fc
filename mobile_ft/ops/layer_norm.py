"""`layer_norm` without weight and bias: z = (x - mean(x)) * r with r = rsqrt(mean((x - mean(x))^2) + eps).

Memory-sharing form (LowMemoryBP, arXiv 2406.16282): the backward needs z, which the next linear keeps as its input, and
r of each row, but not x: dx = r * (dz - mean(dz) - z * mean(dz * z)). Weight and bias are merged into the next linear.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.ops.define import define_autograd, define_op


def _reference(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1) + eps)
    return centred * rstd[:, None], rstd


def _fake(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((x.shape[0],))


layer_norm = define_op("layer_norm(Tensor x, float eps) -> (Tensor, Tensor)", _reference, _fake)


def _backward_reference(dz: Tensor, z: Tensor, rstd: Tensor) -> Tensor:
    return rstd[:, None] * (dz - dz.mean(-1, keepdim=True) - z * (dz * z).mean(-1, keepdim=True))


def _backward_fake(dz: Tensor, z: Tensor, rstd: Tensor) -> Tensor:
    return torch.empty_like(dz)


layer_norm_backward = define_op(
    "layer_norm_backward(Tensor dz, Tensor z, Tensor rstd) -> Tensor", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)


def _autograd(ctx: Any, dz: Tensor, drstd: Tensor) -> tuple[Any, ...]:
    return layer_norm_backward(dz, *ctx.saved_tensors), None


define_autograd("layer_norm", _autograd, _setup)
