"""`ms_rms_norm`: RMS norm without a weight, z = x * r with r = rsqrt(mean(x^2) + eps).

This is the memory-sharing form (LowMemoryBP, arXiv 2406.16282). The backward needs z, which the next linear layer saves
as its input, and r of each row, but not x: dx = r * (dz - z * mean(dz * z)). The weight is applied separately, by
`affine`; `rms_norm` includes it, but saves x.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    rstd = torch.rsqrt(x.square().mean(-1) + eps)
    return x * rstd[:, None], rstd


def _fake(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((x.shape[0],))


ms_rms_norm = define_op("ms_rms_norm(Tensor x, float eps) -> (Tensor, Tensor)", _reference, _fake)


def _backward_reference(dz: Tensor, z: Tensor, rstd: Tensor) -> Tensor:
    return rstd[:, None] * (dz - z * (dz * z).mean(-1, keepdim=True))


def _backward_fake(dz: Tensor, z: Tensor, rstd: Tensor) -> Tensor:
    return torch.empty_like(dz)


ms_rms_norm_backward = define_op(
    "ms_rms_norm_backward(Tensor dz, Tensor z, Tensor rstd) -> Tensor", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)


def _autograd(ctx: Any, dz: Tensor, drstd: Tensor) -> tuple[Any, ...]:
    return ms_rms_norm_backward(dz, *ctx.saved_tensors), None


define_autograd("ms_rms_norm", _autograd, _setup)
