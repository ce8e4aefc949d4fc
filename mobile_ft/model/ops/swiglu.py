"""`swiglu`: silu(gate) * up, elementwise."""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _reference(gate: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.silu(gate) * up


def _fake(gate: Tensor, up: Tensor) -> Tensor:
    return torch.empty_like(gate)


swiglu = define_op("swiglu(Tensor gate, Tensor up) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    sigmoid = gate.sigmoid()
    silu = gate * sigmoid
    return dy * up * (sigmoid + silu * (1 - sigmoid)), dy * silu


def _backward_fake(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(gate), torch.empty_like(up)


swiglu_backward = define_op(
    "swiglu_backward(Tensor dy, Tensor gate, Tensor up) -> (Tensor, Tensor)", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    return swiglu_backward(dy, *ctx.saved_tensors)


define_autograd("swiglu", _autograd, _setup)
