"""`affine`: y = z * weight for each row. It applies a norm's weight to the output of `ms_rms_norm`.

The weight is frozen, so the backward is the same op. The op is cheap enough to be recomputed in the backward, which
then shares one saved z with the norm (LowMemoryBP, arXiv 2406.16282; the paper merges the weight into the next linear
layer, which is not possible in 4 bits).
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
