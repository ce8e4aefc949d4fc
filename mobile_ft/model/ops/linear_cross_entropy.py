"""`linear_cross_entropy`: cross-entropy of every row of x W^T with its target, and the gradient of x, in one pass.

dx = sum_v p_v w_v - w_target is attention of x over the vocabulary. So the kernel needs one pass over the packed head
with an online softmax, and never stores the logits. A row of dx is the gradient of that row's loss, so token weights
can be applied outside of the op. Targets of -100 are ignored: their losses and rows of dx are 0.

With a softcap c (Gemma 2; 0: none), the logits are c tanh(x W^T / c).
"""

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_op
from mobile_ft.model.ops.packed_linear import dense


def _reference(
    x: Tensor, weight: Tensor, fmt: str, rows: int, targets: Tensor, softcap: float
) -> tuple[Tensor, Tensor]:
    w = dense(weight, fmt, rows).to(x.dtype)
    limited = torch.tanh(x @ w.T / softcap) if softcap else None
    logits = x @ w.T if limited is None else softcap * limited
    losses = torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="none")
    valid = targets != -100
    d = logits.softmax(-1)
    d[valid, targets[valid]] -= 1
    if limited is not None:
        d = d * (1 - limited**2)
    return losses, torch.where(valid[:, None], d @ w, 0.0)


def _fake(x: Tensor, weight: Tensor, fmt: str, rows: int, targets: Tensor, softcap: float) -> tuple[Tensor, Tensor]:
    return x.new_empty((x.shape[0],)), torch.empty_like(x)


_INPUTS = "Tensor x, Tensor weight, str format, int rows, Tensor targets, float softcap"
linear_cross_entropy = define_op(f"linear_cross_entropy({_INPUTS}) -> (Tensor, Tensor)", _reference, _fake)


def _loss_reference(x: Tensor, weight: Tensor, fmt: str, rows: int, targets: Tensor, softcap: float) -> Tensor:
    return _reference(x, weight, fmt, rows, targets, softcap)[0]


def _loss_fake(x: Tensor, weight: Tensor, fmt: str, rows: int, targets: Tensor, softcap: float) -> Tensor:
    return x.new_empty((x.shape[0],))


# Evaluation: the same without the gradient, with half of the work.
linear_cross_entropy_loss = define_op(f"linear_cross_entropy_loss({_INPUTS}) -> Tensor", _loss_reference, _loss_fake)
