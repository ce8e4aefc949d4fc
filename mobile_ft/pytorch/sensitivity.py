"""Measures DropBP's sensitivities (arXiv 2402.17812) and the FLOPs of a model's units."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from mobile_ft.pytorch.layers import Layer

_SEED = 0  # fixed, so that dropout is the same in every run


def measure_sensitivities(
    model: nn.Module, loss: Callable[[], Tensor], drop: Callable[[int | None], None], units: int
) -> list[float]:
    """Returns for each unit the sum over all parameters of (norm of the gradient - norm with that unit dropped)^2.

    `loss` runs the model, always on the same batch. `drop` sets the unit that is dropped (None: none). Existing
    gradients of the parameters do not change.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    before = [p.grad for p in parameters]

    def norms(unit: int | None) -> Tensor:
        drop(unit)
        for parameter in parameters:
            parameter.grad = None
        with torch.random.fork_rng():
            torch.manual_seed(_SEED)
            value = loss()
            if value.requires_grad:  # otherwise, everything that trains was dropped
                value.backward()
        zero = torch.zeros((), dtype=torch.float64)
        return torch.stack([zero if p.grad is None else p.grad.norm().double().cpu() for p in parameters])

    try:
        whole = norms(None)
        return [float((whole - norms(unit)).square().sum()) for unit in range(units)]
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


def unit_flops(loss: Callable[[], Tensor], layers: Sequence[Layer]) -> list[float]:
    """Returns the FLOPs of each unit's forward, from PyTorch's counter of matrix products. An attention unit is counted
    from the beginning of the layer to the end of its attention branch, and an MLP unit from there to its end."""
    counts: list[int] = []
    counter = FlopCounterMode(display=False)

    def count(*_: object) -> None:
        counts.append(counter.get_total_flops())

    handles = [layer.module.register_forward_pre_hook(count) for layer in layers]
    handles += [branch.end.register_forward_hook(count) for layer in layers for branch in layer.branches]
    try:
        with torch.random.fork_rng(), counter:
            loss()
    finally:
        for handle in handles:
            handle.remove()
    flops: list[float] = []
    counts = counts[: len(counts) // 3 * 3]
    for start, attention, mlp in zip(counts[::3], counts[1::3], counts[2::3], strict=True):
        flops += [float(attention - start), float(mlp - attention)]
    return flops
