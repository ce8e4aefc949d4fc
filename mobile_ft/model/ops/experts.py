"""`experts`: a mixture of experts (arXiv 1701.06538) of gated MLPs with SiLU, on packed weights.

x is [T, h], logits [T, E] are the router's. A token's scores are the softmax or the sigmoids of its logits. It chooses
the top_k experts by score, plus `bias` [E] if there is one; of equal ones, those with the lower number. Their scores
are divided by their sum if `normalize`, and multiplied by `scale`:

    y = sum over the chosen e of score_e D_e (silu(G_e x) * (U_e x))

gate_up [E 2 I, h] has G_e and then U_e of each expert, down [E h, I] has D_e. They are frozen, and those of experts
that no token chose are not read. Each expert's part of both may have LoRA of the same rank r and scale: W_e +
lora_scale B_e A_e, in the layout of PEFT's files, with A [E r, columns] and B [rows of an expert, r E], where the
columns of each expert are E apart.
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
    gate_up_a: Tensor | None = None,
    gate_up_b: Tensor | None = None,
    down_a: Tensor | None = None,
    down_b: Tensor | None = None,
    lora_scale: float = 1.0,
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
    if gate_up_a is not None and gate_up_b is not None and down_a is not None and down_b is not None:
        inward = inward + lora_scale * _product(gate_up_a, gate_up_b, experts)
        outward = outward + lora_scale * _product(down_a, down_b, experts)
    y = torch.zeros_like(x)
    for k in range(top_k):
        gate, up = torch.einsum("th,trh->tr", x, inward[chosen[:, k]]).chunk(2, 1)
        part = torch.einsum("ti,thi->th", torch.nn.functional.silu(gate) * up, outward[chosen[:, k]])
        y = y + scale * weights[:, k : k + 1] * part
    return y


def _product(a: Tensor, b: Tensor, experts: int) -> Tensor:
    """Returns B_e A_e [E, rows of an expert, columns]."""
    return torch.einsum(
        "ore,erc->eoc", b.reshape(len(b), -1, experts), a.reshape(experts, b.shape[1] // experts, a.shape[1])
    )


def _fake(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x)


_ARGUMENTS = (
    "Tensor x, Tensor logits, Tensor? bias, Tensor gate_up, str gate_up_format, int gate_up_rows, Tensor down, "
    "str down_format, int down_rows, int top_k, bool sigmoid, bool normalize, float scale"
)
_LORA = "Tensor{0} gate_up_a, Tensor{0} gate_up_b, Tensor{0} down_a, Tensor{0} down_b, float lora_scale"
experts = define_op(f"experts({_ARGUMENTS}, {_LORA.format('?')}) -> Tensor", _reference, _fake)


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


def _lora_backward_reference(dy: Tensor, x: Tensor, logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *fixed, gate_up_a, gate_up_b, down_a, down_b, lora_scale = rest
    with torch.enable_grad():
        of = [y.detach().requires_grad_() for y in (x, logits, gate_up_a, gate_up_b, down_a, down_b)]
        inputs: list[Any] = [*of[:2], *fixed, *of[2:], lora_scale]
        return torch.autograd.grad(_reference(*inputs), of, dy)


def _lora_backward_fake(dy: Tensor, x: Tensor, logits: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(y) for y in (x, logits, *rest[-5:-1]))


experts_lora_backward = define_op(
    f"experts_lora_backward(Tensor dy, {_ARGUMENTS}, {_LORA.format('')}) -> ({', '.join(['Tensor'] * 6)})",
    _lora_backward_reference,
    _lora_backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    ctx.given = [isinstance(x, Tensor) for x in inputs]
    ctx.numbers = [None if isinstance(x, Tensor) else x for x in inputs]
    ctx.save_for_backward(*tensors)


def _autograd(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    tensors = iter(ctx.saved_tensors)
    inputs = [next(tensors) if given else x for given, x in zip(ctx.given, ctx.numbers, strict=True)]
    if inputs[-2] is None:
        dx, dlogits = experts_backward(dy, *inputs[:-5])
        return dx, dlogits, *[None] * 16
    dx, dlogits, *lora = experts_lora_backward(dy, *inputs)
    return dx, dlogits, *[None] * 11, *lora, None


define_autograd("experts", _autograd, _setup)
