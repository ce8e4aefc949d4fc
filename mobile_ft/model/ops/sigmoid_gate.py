"""`sigmoid_gate`: x * sigmoid(gate) for x [T, n] and gate [T, g]: n / g neighbours of x share a gate.

This is the output gate of attention (arXiv 2505.06708), for a head or for an element.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _sigmoid(x: Tensor, gate: Tensor) -> Tensor:
    return gate.sigmoid().repeat_interleave(x.shape[1] // gate.shape[1], 1)


def _reference(x: Tensor, gate: Tensor) -> Tensor:
    return x * _sigmoid(x, gate)


def _fake(x: Tensor, gate: Tensor) -> Tensor:
    return torch.empty_like(x)


sigmoid_gate = define_op("sigmoid_gate(Tensor x, Tensor gate) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    s = gate.sigmoid()
    dgate = s * (1 - s) * (dy * x).reshape(*gate.shape, -1).sum(-1)
    return dy * _sigmoid(x, gate), dgate


def _backward_fake(dy: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(gate)


sigmoid_gate_backward = define_op(
    "sigmoid_gate_backward(Tensor dy, Tensor x, Tensor gate) -> (Tensor, Tensor)", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return sigmoid_gate_backward(dy, *ctx.saved_tensors)


define_autograd("sigmoid_gate", _autograd, _setup)
