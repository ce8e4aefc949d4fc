"""Applies a schedule to a model: detaches branches, or freezes layers, that a step does not train."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn

from mobile_ft.errors import UserError
from mobile_ft.pytorch.layers import Layer, find_layers
from mobile_ft.pytorch.replaced import replace_forward
from mobile_ft.pytorch.selection import Schedule, allocate_drop_rates
from mobile_ft.pytorch.sensitivity import measure_sensitivities, unit_flops

_MARK = "_mobile_ft_scheduled"


class Scheduled:
    """Trains the layers of a model by a schedule until `undo` or the end of the `with` block.

        with Scheduled(model, Schedule("dropbp", ratio=0.5, steps=len(batches))) as scheduled:
            for step, batch in enumerate(batches):
                scheduled.begin(step)
                model(**batch).loss.backward()
                ...

    The forward is always complete. With `lcsb` and `dropbp`, branches that are not selected are detached before they
    are added to the residual. With `suffix` and `freeze`, the layers below the lowest selected one run without
    gradients. With `lisa`, the gradient passes through all layers, but only the parameters of selected layers get one.
    The gradient of other parameters is None, so optimizers skip them. In evaluation mode, nothing changes.

    `dropbp` measures sensitivities in the first forward of the step at a tenth of the run. It runs one more forward and
    backward per unit on that batch, which must have labels.
    """

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        self.schedule = schedule
        self.layers = find_layers(model)
        if _MARK in self.layers[0].module.__dict__:
            raise UserError("the model already has a schedule; call undo() on it first")
        self.layers[0].module.__dict__[_MARK] = True
        self.sensitivities: list[float] | None = None  # per unit: attention and MLP of each layer in turn
        self.drop_rates: list[float] | None = None
        self._model = model
        self.flops: list[float] | None = None  # of each unit's forward, counted when the sensitivities are measured
        self._count = 2 * len(self.layers) if schedule.drops_units else len(self.layers)
        self._detached = [False] * 2 * len(self.layers)
        self._frozen = [False] * len(self.layers)
        self._trainable = [[p for p in layer.module.parameters() if p.requires_grad] for layer in self.layers]
        self._trains = [  # whether a unit has trainable parameters
            any(p.requires_grad for module in branch.modules for p in module.parameters())
            for layer in self.layers
            for branch in layer.branches
        ]
        self._measures_next = False
        self._undo: list[Callable[[], None]] = []
        for index, layer in enumerate(self.layers):
            self._attach(index, layer)
        self._undo.append(replace_forward(model, self._measuring))
        self.selected = [True] * self._count  # at the current step

    def __enter__(self) -> "Scheduled":
        return self

    def __exit__(self, *error: object) -> None:
        self.undo()

    def begin(self, step: int) -> list[bool]:
        """Selects the layers (for dropbp: units) that train until the next `begin`, and returns a flag for each.

        `step` counts from 0. With gradient checkpointing, do not call it between a forward and its backward.
        """
        measuring = self.schedule.measuring_step
        self._measures_next = measuring is not None and step >= measuring and self.drop_rates is None
        self._step = step
        self._check_checkpointing()
        self._use(self.schedule.select(step, self._count, self.drop_rates))
        return self.selected

    def _check_checkpointing(self) -> None:
        """Rejects reentrant checkpointing, which cuts the graph above layers whose output has no gradient."""
        if self.schedule.name not in ("suffix", "freeze"):
            return
        for layer in self.layers:
            how = getattr(layer.module, "_gradient_checkpointing_func", None)
            if getattr(layer.module, "gradient_checkpointing", False) and getattr(how, "keywords", {}).get(
                "use_reentrant"
            ):
                raise UserError(
                    f"schedule {self.schedule.name}: requires gradient checkpointing with use_reentrant=False"
                )

    def use_sensitivities(self, sensitivities: Sequence[float], flops: Sequence[float]) -> None:
        """Sets the drop rates from sensitivities and FLOPs per unit that were measured or saved before."""
        self.sensitivities, self.flops = list(sensitivities), list(flops)
        self.drop_rates = allocate_drop_rates(sensitivities, flops, 1 - self.schedule.ratio)

    def undo(self) -> None:
        """Removes the schedule from the model."""
        while self._undo:
            self._undo.pop()()
        if self.schedule.name == "lisa":
            for parameters in self._trainable:
                for parameter in parameters:
                    parameter.requires_grad_(True)
        self.layers[0].module.__dict__.pop(_MARK, None)

    def _use(self, selected: list[bool]) -> None:
        self.selected = selected
        name, layers = self.schedule.name, len(self.layers)
        if self.schedule.drops_units:
            # Otherwise nothing might train: with LoRA on q and v, for example, MLPs have no parameters.
            if not any(flag and trains for flag, trains in zip(selected, self._trains, strict=True)):
                selected[max((u for u, trains in enumerate(self._trains) if trains), default=-1)] = True
            self._detached = [not flag for flag in selected]
        elif name == "lcsb":
            self._detached = [not flag for flag in selected for _ in range(2)]
        elif name == "lisa":
            for flag, parameters in zip(selected, self._trainable, strict=True):
                for parameter in parameters:
                    parameter.requires_grad_(flag)
        else:
            lowest = selected.index(True)
            self._frozen = [i < lowest for i in range(layers)]

    def _attach(self, index: int, layer: Layer) -> None:
        self._without_gradients_if(layer.module, lambda: self._frozen[index])
        for unit, branch in enumerate(layer.branches, 2 * index):
            self._undo.append(branch.end.register_forward_hook(self._detach(unit)).remove)
            for module in branch.modules:
                self._without_gradients_if(module, partial(self._is_detached, unit))

    def _is_detached(self, unit: int) -> bool:
        return self._detached[unit]

    def _without_gradients_if(self, module: nn.Module, condition: Callable[[], bool]) -> None:
        """Runs the module's forward without gradients while the condition is true."""

        def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(forward)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with torch.set_grad_enabled(torch.is_grad_enabled() and not (module.training and condition())):
                    return forward(*args, **kwargs)

            return wrapped

        self._undo.append(replace_forward(module, wrap))

    def _detach(self, unit: int) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(module: nn.Module, args: Any, out: Any) -> Any:
            if not (module.training and self._detached[unit]):
                return out
            return out.detach() if isinstance(out, Tensor) else (out[0].detach(), *out[1:])

        return hook

    def _measuring(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._measures_next and self._model.training and torch.is_grad_enabled():
                self._measures_next = False
                self._measure(lambda: forward(*args, **kwargs))
                self._use(self.schedule.select(self._step, self._count, self.drop_rates))
            return forward(*args, **kwargs)

        return wrapped

    def _measure(self, forward: Callable[[], Any]) -> None:
        def loss() -> Tensor:
            value = getattr(forward(), "loss", None)
            if not isinstance(value, Tensor):
                raise UserError("dropbp measures sensitivities by the model's loss; pass labels to the model")
            return value

        def drop(unit: int | None) -> None:
            self._detached = [u == unit for u in range(self._count)]

        drop(None)
        flops = unit_flops(loss, self.layers)
        if len(flops) != self._count:
            raise UserError(
                f"the model's forward ran {len(flops)} of its {self._count} attention and MLP branches; dropbp "
                "requires all"
            )
        self.use_sensitivities(measure_sensitivities(self._model, loss, drop, self._count), flops)
