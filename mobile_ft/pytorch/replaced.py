"""Other forwards around a module's own, which come off again in any order."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

Forward = Callable[..., Any]


def replace_forward(module: nn.Module, wrap: Callable[[Forward], Forward]) -> Callable[[], None]:
    """Gives the module the forward `wrap(the one it has)`; what takes it off again, whatever was put on since."""
    inner: list[Forward] = [module.forward]  # changes when what lies below comes off

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
