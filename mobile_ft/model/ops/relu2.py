"""`relu2`: the squared ReLU, max(x, 0)^2 (arXiv 2109.08668), the activation of MLPs without a gate."""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor) -> Tensor:
    return x.relu() ** 2


def _fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


relu2 = define_op("relu2(Tensor x) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, x: Tensor) -> Tensor:
    return 2 * x.relu() * dy


def _backward_fake(dy: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


relu2_backward = define_op("relu2_backward(Tensor dy, Tensor x) -> Tensor", _backward_reference, _backward_fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, dy: Tensor) -> Tensor:
    return relu2_backward(dy, *ctx.saved_tensors)


define_autograd("relu2", _autograd, _setup)
