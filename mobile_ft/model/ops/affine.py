"""`affine`: y = z * weight, row by row; the weight of a norm, applied to what `ms_rms_norm` leaves.

It is frozen, so its backward is itself. Cheap enough to be computed again in a backward, which then shares one saved z
with the norm (LowMemoryBP, arXiv 2406.16282; there the weight is merged into the next linear, which 4 bits forbid).
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(z: Tensor, weight: Tensor) -> Tensor:
    return z * weight


def _fake(z: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(z)


affine = define_op("affine(Tensor z, Tensor weight) -> Tensor", _reference, _fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return affine(dy, *ctx.saved_tensors), None


define_autograd("affine", _autograd, _setup)
