"""`add_bias`: x + bias with x [T, D] and a frozen bias [D]."""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, bias: Tensor) -> Tensor:
    return x + bias


def _fake(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x)


add_bias = define_op("add_bias(Tensor x, Tensor bias) -> Tensor", _reference, _fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return dy, None


define_autograd("add_bias", _autograd, _setup)
