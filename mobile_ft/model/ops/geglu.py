"""`geglu`: gelu(gate) * up, elementwise, with the tanh approximation that Gemma was trained with."""

import math
from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def _fake(gate: Tensor, up: Tensor) -> Tensor:
    return torch.empty_like(gate)


geglu = define_op("geglu(Tensor gate, Tensor up) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    # (1 + tanh(t)) / 2 = sigmoid(2 t), so gelu is gate * sigmoid(2 t).
    scale = 2 * math.sqrt(2 / math.pi)
    sigmoid = (scale * (gate + 0.044715 * gate**3)).sigmoid()
    slope = scale * (1 + 3 * 0.044715 * gate**2)
    gelu = gate * sigmoid
    return dy * up * (sigmoid + gelu * (1 - sigmoid) * slope), dy * gelu


def _backward_fake(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(gate), torch.empty_like(up)


geglu_backward = define_op(
    "geglu_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return geglu_backward(dy, *ctx.saved_tensors)


define_autograd("geglu", _autograd, _setup)
