"""Applies LowMemoryBP to a model, and removes it."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from mobile_ft.errors import UserError
from mobile_ft.model.ops.glu_2bit import REGELU2, RESILU2, ReluCombination
from mobile_ft.pytorch.activations import approximate
from mobile_ft.pytorch.norms import ms_layer_norm, ms_rms_norm
from mobile_ft.pytorch.recompute_norms import RecomputeNorms
from mobile_ft.pytorch.replaced import replace_forward
from mobile_ft.pytorch.schedule import Scheduled
from mobile_ft.pytorch.selection import Schedule

# Modules of Transformers by class name, because they have no common base class.
_SILU = ("SiLU", "SiLUActivation")
_GELU = ("GELU", "GELUActivation", "NewGELUActivation", "FastGELUActivation", "GELUTanh", "PytorchGELUTanh")


class Applied:
    """The changes of `apply` to a model."""

    def __init__(self) -> None:
        self.activations = 0  # number of replaced activations
        self.norms = 0
        self.scheduled: Scheduled | None = None
        self._undo: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Removes the changes."""
        while self._undo:
            self._undo.pop()()


def apply(
    model: nn.Module,
    *,
    activation: Literal["exact", "approx2bit"] = "approx2bit",
    norm: Literal["exact", "memory_sharing"] = "memory_sharing",
    schedule: Schedule | None = None,
) -> Applied:
    """Makes autograd keep less for the backward of `model`. Parameters and their names do not change. Works before or
    after PEFT wraps the model.

    Args:
        model: A Hugging Face model.
        activation: "approx2bit" keeps 2 bits per element of every SiLU and GELU, whose derivative becomes a step
            function.
        norm: "memory_sharing" makes RMSNorms and LayerNorms keep only their output without weight, which they share
            with the following linear layers.
        schedule: Schedule to train by. Call `applied.scheduled.begin(step)` before every step; in Transformers'
            Trainer, `mobile_ft.pytorch.callback.ScheduleCallback` does that.

    Raises:
        UserError: The model has no such activations, norms or layers.
    """
    applied = Applied()
    for module in model.modules():
        if activation == "approx2bit":
            h = _step_function(module)
            if h is not None:
                applied._undo.append(replace_forward(module, partial(_approximate, h)))
                applied.activations += 1
        if norm == "memory_sharing":
            forward = _memory_sharing(module)
            if forward is not None:
                applied._undo.append(replace_forward(module, partial(_instead, forward)))
                applied.norms += 1
    if activation == "approx2bit" and applied.activations == 0:
        applied.undo()
        raise UserError(f"activation approx2bit: {type(model).__name__} has no SiLU or GELU module")
    if norm == "memory_sharing" and applied.norms == 0:
        applied.undo()
        raise UserError(f"norm memory_sharing: {type(model).__name__} has no RMSNorm or LayerNorm")
    if applied.norms:
        applied._undo.append(replace_forward(model, partial(_within, RecomputeNorms)))
    if schedule is not None:
        try:
            applied.scheduled = Scheduled(model, schedule)
        except UserError:
            applied.undo()
            raise
        applied._undo.append(applied.scheduled.undo)
    return applied


def _within(context: Callable[[], Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with context():
            return forward(*args, **kwargs)

    return wrapped


def _step_function(module: nn.Module) -> ReluCombination | None:
    """Returns the function whose derivative replaces the activation's, or None for other modules."""
    name = type(module).__name__
    return RESILU2 if name in _SILU else REGELU2 if name in _GELU else None


def _instead(forward: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    return forward


def _approximate(h: ReluCombination, exact: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = exact(x)
        return approximate(x, y, h)

    return forward


def _memory_sharing(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """Returns the memory-sharing forward of a norm, or None for other modules."""
    name = type(module).__name__
    if isinstance(module, nn.LayerNorm):
        if len(module.normalized_shape) != 1:
            return None

        def layer_norm(x: Tensor) -> Tensor:
            return ms_layer_norm(x, module.eps, module.weight, module.bias)

        return layer_norm
    if not name.endswith("RMSNorm") or not isinstance(getattr(module, "weight", None), nn.Parameter):
        return None
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    offset = 1.0 if name.startswith("Gemma") else 0.0  # Gemma adds 1 to its weights

    def rms_norm(x: Tensor) -> Tensor:
        weight = cast(Tensor, module.weight)
        return ms_rms_norm(x, eps, weight + offset if offset else weight)

    return rms_norm
