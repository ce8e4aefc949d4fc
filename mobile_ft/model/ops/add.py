"""`add`: x + y of the same shape [T, D]. Because of it, the runtime needs no other operator library."""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def _fake(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x)


add = define_op("add(Tensor x, Tensor y) -> Tensor", _reference, _fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _autograd(ctx: Any, dz: Tensor) -> tuple[Any, ...]:
    return dz, dz


define_autograd("add", _autograd, _setup)
