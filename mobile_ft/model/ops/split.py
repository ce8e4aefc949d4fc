"""`split`: the two parts of each row's groups, such as the gate and up of a fused linear layer; `join` is its inverse.

A row of x [T, n] is `groups` groups of equal size. a [T, groups * first] has the `first` first numbers of each group,
and b has the others. The backward of each is the other.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(x: Tensor, groups: int, first: int) -> tuple[Tensor, Tensor]:
    t = x.shape[0]
    parts = x.reshape(t, groups, -1)
    return parts[..., :first].reshape(t, -1).clone(), parts[..., first:].reshape(t, -1).clone()


def _fake(x: Tensor, groups: int, first: int) -> tuple[Tensor, Tensor]:
    t, n = x.shape
    return x.new_empty((t, groups * first)), x.new_empty((t, n - groups * first))


split = define_op("split(Tensor x, int groups, int first) -> (Tensor, Tensor)", _reference, _fake)


def _join_reference(a: Tensor, b: Tensor, groups: int) -> Tensor:
    t = a.shape[0]
    return torch.cat([a.reshape(t, groups, -1), b.reshape(t, groups, -1)], -1).reshape(t, -1)


def _join_fake(a: Tensor, b: Tensor, groups: int) -> Tensor:
    return a.new_empty((a.shape[0], a.shape[1] + b.shape[1]))


join = define_op("join(Tensor a, Tensor b, int groups) -> Tensor", _join_reference, _join_fake)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, ctx.groups, _ = inputs


def _autograd(ctx: Any, da: Tensor, db: Tensor) -> tuple[Any, ...]:
    return join(da, db, ctx.groups), None, None


define_autograd("split", _autograd, _setup)


def _setup_join(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, _, groups = inputs
    ctx.groups, ctx.first = groups, a.shape[1] // groups


def _autograd_join(ctx: Any, dx: Tensor) -> tuple[Any, ...]:
    return *split(dx, ctx.groups, ctx.first), None


define_autograd("join", _autograd_join, _setup_join)
