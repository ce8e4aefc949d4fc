"""`rms_norm`: y = x * r * weight with r = rsqrt(mean(x^2) + eps); the weight is frozen.

x [T, D] is normalized in groups of the weight's size: the whole row, or each of its heads. r is [T, groups].

Backward (LowMemoryBP, arXiv 2406.16282): dx = r * (dz - z * mean(dz * z)) with z = x * r, dz = dy * weight.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _groups(x: Tensor, weight: Tensor) -> Tensor:
    """Reshapes [T, D] to [T, groups, size of the weight]."""
    return x.reshape(x.shape[0], -1, weight.shape[0])


def _reference(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    groups = _groups(x, weight)
    rstd = torch.rsqrt(groups.square().mean(-1) + eps)
    return (groups * rstd[..., None] * weight).reshape(x.shape), rstd


def _fake(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((x.shape[0], x.shape[1] // weight.shape[0]))


rms_norm = define_op("rms_norm(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)", _reference, _fake)


def _backward_reference(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
    z = _groups(x, weight) * rstd[..., None]
    dz = _groups(dy, weight) * weight
    return (rstd[..., None] * (dz - z * (dz * z).mean(-1, keepdim=True))).reshape(x.shape)


def _backward_fake(dy: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> Tensor:
    return torch.empty_like(x)


rms_norm_backward = define_op(
    "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, Tensor rstd) -> Tensor",
    _backward_reference,
    _backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _autograd(ctx: Any, dy: Tensor, drstd: Tensor) -> tuple[Any, ...]:
    x, weight, rstd = ctx.saved_tensors
    return rms_norm_backward(dy, x, weight, rstd), None, None


define_autograd("rms_norm", _autograd, _setup)
