"""Wraps a module's forward. Wrappers can be removed in any order."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

Forward = Callable[..., Any]


def replace_forward(module: nn.Module, wrap: Callable[[Forward], Forward]) -> Callable[[], None]:
    """Replaces the module's forward by `wrap(forward)`. Returns a function that removes this wrapper, even if others
    were added later."""
    inner: list[Forward] = [module.forward]  # changes when an inner wrapper is removed

    @wraps(module.forward)
    def call_inner(*args: Any, **kwargs: Any) -> Any:
        return inner[0](*args, **kwargs)

    forward = wrap(call_inner)
    layers: list[tuple[Forward, list[Forward]]] = module.__dict__.setdefault("_mobile_ft_forwards", [])
    layers.append((forward, inner))
    module.forward = forward

    def undo() -> None:
        place = layers.index((forward, inner))
        del layers[place]
        if place < len(layers):
            layers[place][1][0] = inner[0]
        elif inner[0] == type(module).forward.__get__(module):
            del module.__dict__["forward"]
        else:
            module.forward = inner[0]
        if not layers:
            del module.__dict__["_mobile_ft_forwards"]

    return undo
