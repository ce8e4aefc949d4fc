"""`packed_linear`: a linear layer on a packed weight, with its LoRA branch.

y = x W^T + scale * (x A^T) B^T, with W [out_features, in_features] packed (mobile_ft/model/formats.py), A [rank, in],
B [out, rank]. W is frozen, so only dx, dA and dB are needed. The backward recomputes h = x A^T instead of storing it
(MeSP, arXiv 2602.13069). The kernel decodes tiles of W inside the GEMM; this reference decodes the whole W.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.formats import parse_format, unpack
from mobile_ft.model.ops.define import define_autograd, define_op


def dense(weight: Tensor, fmt: str, out_features: int) -> Tensor:
    """Decodes a packed weight (uint8) to float32 [out_features, in_features]."""
    return torch.from_numpy(unpack(weight.numpy(), fmt, out_features))


def _reference(
    x: Tensor, weight: Tensor, fmt: str, out_features: int, a: Tensor | None, b: Tensor | None, scale: float
) -> Tensor:
    y = x @ dense(weight, fmt, out_features).to(x.dtype).T
    if a is not None and b is not None:
        y += scale * ((x @ a.T) @ b.T)
    return y


def _fake(
    x: Tensor, weight: Tensor, fmt: str, out_features: int, a: Tensor | None, b: Tensor | None, scale: float
) -> Tensor:
    return x.new_empty((x.shape[0], out_features))


packed_linear = define_op(
    "packed_linear(Tensor x, Tensor weight, str format, int out_features, Tensor? lora_a, Tensor? lora_b, float scale)"
    " -> Tensor",
    _reference,
    _fake,
)


def _backward_reference(dy: Tensor, weight: Tensor, fmt: str, out_features: int) -> Tensor:
    return dy @ dense(weight, fmt, out_features).to(dy.dtype)


def _backward_fake(dy: Tensor, weight: Tensor, fmt: str, out_features: int) -> Tensor:
    return dy.new_empty((dy.shape[0], weight.shape[1] * parse_format(fmt).group))


packed_linear_backward = define_op(
    "packed_linear_backward(Tensor dy, Tensor weight, str format, int out_features) -> Tensor",
    _backward_reference,
    _backward_fake,
)


def _lora_backward_reference(
    dy: Tensor, x: Tensor, weight: Tensor, fmt: str, out_features: int, a: Tensor, b: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    g = scale * (dy @ b)
    dx = dy @ dense(weight, fmt, out_features).to(dy.dtype) + g @ a
    return dx, g.T @ x, scale * (dy.T @ (x @ a.T))


def _lora_backward_fake(
    dy: Tensor, x: Tensor, weight: Tensor, fmt: str, out_features: int, a: Tensor, b: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(a), torch.empty_like(b)


packed_linear_lora_backward = define_op(
    "packed_linear_lora_backward(Tensor dy, Tensor x, Tensor weight, str format, int out_features, Tensor lora_a,"
    " Tensor lora_b, float scale) -> (Tensor, Tensor, Tensor)",
    _lora_backward_reference,
    _lora_backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.fmt, ctx.out_features, a, b, ctx.scale = inputs
    ctx.has_lora = a is not None
    ctx.save_for_backward(*((x, weight, a, b) if ctx.has_lora else (weight,)))


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    if not ctx.has_lora:
        (weight,) = ctx.saved_tensors
        return packed_linear_backward(dy, weight, ctx.fmt, ctx.out_features), None, None, None, None, None, None
    x, weight, a, b = ctx.saved_tensors
    dx, da, db = packed_linear_lora_backward(dy, x, weight, ctx.fmt, ctx.out_features, a, b, ctx.scale)
    return dx, None, None, None, da, db, None


define_autograd("packed_linear", _autograd, _setup)
