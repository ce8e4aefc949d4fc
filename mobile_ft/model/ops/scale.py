"""`scale`: x times a number."""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, factor: float) -> Tensor:
    return x * factor


def _fake(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


_scale = define_op("scale(Tensor x, float factor) -> Tensor", _reference, _fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, ctx.factor = inputs


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return _scale(dy, ctx.factor), None


define_autograd("scale", _autograd, _setup)


def scale(x: Tensor, factor: float) -> Tensor:
    """Returns x times the factor; x itself for a factor of 1."""
    return x if factor == 1 else _scale(x, factor)
