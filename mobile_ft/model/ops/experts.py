"""`experts`: a mixture of experts (arXiv 1701.06538) of gated MLPs with SiLU, on packed weights.

x is [T, h], logits [T, E] are the router's. A token's scores are the softmax or the sigmoids of its logits. It chooses
the top_k experts by score, plus `bias` [E] if there is one; of equal ones, those with the lower number. Their scores
are divided by their sum if `normalize`, and multiplied by `scale`:

    y = sum over the chosen e of score_e D_e (silu(G_e x) * (U_e x))

gate_up [E 2 I, h] has G_e and then U_e of each expert, down [E h, I] has D_e. They are frozen, and those of experts
that no token chose are not read.
"""

from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op
from mobile_ft.model.ops.packed_linear import dense

_SUM_EPS = 1e-6  # added to sums of sigmoids


def _reference(
    x: Tensor,
    logits: Tensor,
    bias: Tensor | None,
    gate_up: Tensor,
    gate_up_format: str,
    gate_up_rows: int,
    down: Tensor,
    down_format: str,
    down_rows: int,
    top_k: int,
    sigmoid: bool,
    normalize: bool,
    scale: float,
) -> Tensor:
    experts = logits.shape[1]
    scores = logits.sigmoid() if sigmoid else logits.softmax(1)
    order = torch.sort(scores if bias is None else scores + bias, dim=1, descending=True, stable=True).indices
    chosen = order[:, :top_k]
    weights = scores.gather(1, chosen)
    if normalize:
        weights = weights / (weights.sum(1, keepdim=True) + (_SUM_EPS if sigmoid else 0.0))
    inward = dense(gate_up, gate_up_format, gate_up_rows).to(x.dtype).reshape(experts, -1, x.shape[1])
    outward = dense(down, down_format, down_rows).to(x.dtype).reshape(experts, x.shape[1], -1)
    y = torch.zeros_like(x)
    for k in range(top_k):
        gate, up = torch.einsum("th,trh->tr", x, inward[chosen[:, k]]).chunk(2, 1)
        part = torch.einsum("ti,thi->th", torch.nn.functional.silu(gate) * up, outward[chosen[:, k]])
        y = y + scale * weights[:, k : k + 1] * part
    return y


def _fake(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


_ARGUMENTS = (
    "Tensor x, Tensor logits, Tensor? bias, Tensor gate_up, str gate_up_format, int gate_up_rows, Tensor down, "
    "str down_format, int down_rows, int top_k, bool sigmoid, bool normalize, float scale"
)
experts = define_op(f"experts({_ARGUMENTS}) -> Tensor", _reference, _fake)


def _backward_reference(dy: Tensor, x: Tensor, logits: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x, logits = (y.detach().requires_grad_() for y in (x, logits))
        dx, dlogits = torch.autograd.grad(_reference(x, logits, *rest), [x, logits], dy)
    return dx, dlogits


def _backward_fake(dy: Tensor, x: Tensor, logits: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(logits)


experts_backward = define_op(
    f"experts_backward(Tensor dy, {_ARGUMENTS}) -> (Tensor, Tensor)", _backward_reference, _backward_fake
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, logits, bias, gate_up, gate_up_format, gate_up_rows, down, *ctx.numbers = inputs
    ctx.format = (gate_up_format, gate_up_rows)
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, logits, *([bias] if ctx.has_bias else []), gate_up, down)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    x, logits, *bias, gate_up, down = ctx.saved_tensors
    dx, dlogits = experts_backward(
        dy, x, logits, bias[0] if ctx.has_bias else None, gate_up, *ctx.format, down, *ctx.numbers
    )
    return dx, dlogits, *[None] * 11


define_autograd("experts", _autograd, _setup)
