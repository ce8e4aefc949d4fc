"""`swiglu_2bit`, `geglu_2bit`: gated activations that keep two bits of the gate (Approx-BP, arXiv 2406.16282).

The forward is exact, y = act(gate) * up. The backward replaces act' by the derivative of h(g) = sum_i a_i max(g - c_i,
0), a step function. `codes` has the interval between the thresholds c that contains a gate, and the derivative is the
sum of the a below it: 0, a1, a1 + a2 or 1.

    dgate = dy * up * h'(gate)      dup = dy * act(gate), with act(gate) = y / up

Saved are `codes` [T, ceil(D / 4)], `up`, and y, which the next linear layer saves as its input anyway (for its LoRA
gradient). The division adds a rounding error. If `up` is exactly 0, the activation is lost, and dup is 0. Bytes per
element in float32:

    gate, act, up, y          16     every op saves its own inputs, as in PyTorch
    codes, act, up, y         12.25  the same with Approx-BP, as in the paper
    gate, up, y               12     `swiglu`, and a linear that saves its input
    codes, up, y               8.25  this op
    gate, up                   8     `swiglu`, with y recomputed in the backward

So a gated activation gains nothing over the last line: its backward needs two numbers per element in any form, and the
codes are additional. They are useful if the linear layer saves y anyway, and they avoid the exponential in the
backward.

The codes depend only on the gate, so a unit that recomputes its gate gets the same codes and the same gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


@dataclass(frozen=True)
class ReluCombination:
    """h(x) = sum_i a_i max(x - c_i, 0). The c are ascending, and the sum of the a is 1."""

    a: tuple[float, float, float]
    c: tuple[float, float, float]


# The paper's authors found these values with simulated annealing on the L2 distance to SiLU and GELU.
# benchmarks/search_approx.py reaches the same distance within 0.02 %.
RESILU2 = ReluCombination(
    a=(-0.04060357190528599, 1.080925428529668, -0.040321856624382146),
    c=(-6.3050461001646445, -0.0008684942046214787, 6.325815242089708),
)
REGELU2 = ReluCombination(
    a=(-0.04922261145617846, 1.0979632065417297, -0.048740595085551286),
    c=(-3.1858810036855245, -0.001178821281161997, 3.190832613414926),
)


def _pack(codes: Tensor) -> Tensor:
    """Packs codes 0..3 [T, D] as uint8 [T, ceil(D / 4)], the first element in the lowest bits."""
    fours = torch.nn.functional.pad(codes, (0, -codes.shape[1] % 4)).unflatten(1, (-1, 4))
    return (fours << torch.arange(0, 8, 2)).sum(2).to(torch.uint8)


def _unpack(packed: Tensor, shape: torch.Size) -> Tensor:
    return (packed[..., None].long() >> torch.arange(0, 8, 2) & 3).flatten(1)[:, : shape[1]]


def _define(name: str, act: Callable[[Tensor], Tensor], h: ReluCombination) -> tuple[Any, Any]:
    """Defines the op and its backward."""

    def reference(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        return act(gate) * up, _pack(torch.stack([gate > c for c in h.c]).sum(0))

    def fake(gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(gate), gate.new_empty((gate.shape[0], (gate.shape[1] + 3) // 4), dtype=torch.uint8)

    def backward_reference(dy: Tensor, up: Tensor, y: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        slopes = torch.tensor([*accumulate(h.a, initial=0.0)], dtype=dy.dtype)
        return dy * up * slopes[_unpack(codes, dy.shape)], dy * torch.where(up == 0, 0.0, y / up)

    def backward_fake(dy: Tensor, up: Tensor, y: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(dy), torch.empty_like(dy)

    op = define_op(f"{name}(Tensor gate, Tensor up) -> (Tensor, Tensor)", reference, fake)
    backward = define_op(
        f"{name}_backward(Tensor dy, Tensor up, Tensor y, Tensor codes) -> (Tensor, Tensor)",
        backward_reference,
        backward_fake,
    )

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[1], *output)

    def autograd(ctx: Any, dy: Tensor, dcodes: Tensor | None) -> tuple[Any, ...]:
        return backward(dy, *ctx.saved_tensors)

    define_autograd(name, autograd, setup)
    return op, backward


swiglu_2bit, swiglu_2bit_backward = _define("swiglu_2bit", torch.nn.functional.silu, RESILU2)
geglu_2bit, geglu_2bit_backward = _define(
    "geglu_2bit", lambda gate: torch.nn.functional.gelu(gate, approximate="tanh"), REGELU2
)
