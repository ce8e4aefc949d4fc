"""A norm's weight, applied again in the backward instead of keeping what it gave.

Autograd keeps a linear's input, which is a norm's output y = z w + b. The norm keeps z. Within `AgainFromZ` whatever
would keep y, or a view of it, keeps z and makes y again.
"""

import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from mobile_ft.pytorch.saved import kept, storage_of


@dataclass
class _Source:
    """What a y was made of."""

    z: Tensor
    weight: Tensor
    bias: Tensor | None
    y: "weakref.ref[Tensor]"
    versions: tuple[int, ...]

    def again(self) -> Tensor:
        if self._versions() != self.versions:
            raise RuntimeError("a norm's weight was changed between forward and backward")
        with torch.no_grad():
            return times(self.z, self.weight, self.bias)

    def _versions(self) -> tuple[int, ...]:
        return tuple(t._version for t in (self.z, self.weight, self.bias) if t is not None)


@dataclass
class _View:
    """A tensor on y's storage."""

    source: _Source
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


def times(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = z * weight
    return y if bias is None else y + bias


_sources: dict[int, _Source] = {}  # by y's storage, as long as y lives


def affine(z: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = z w + b, of which nothing but z is kept within `AgainFromZ`."""
    y = times(z, weight, bias)
    if _depth and y.is_contiguous() and torch.is_grad_enabled():
        key = storage_of(y)

        def forget(dead: "weakref.ref[Tensor]") -> None:  # or z of every norm would stay until the forward ends
            if key in _sources and _sources[key].y is dead:
                del _sources[key]

        versions = tuple(t._version for t in (z, weight, bias) if t is not None)
        _sources[key] = _Source(z.detach(), weight, bias, weakref.ref(y, forget), versions)
    return y


_depth = 0


class AgainFromZ(AbstractContextManager[None]):
    """Around a model's forward."""

    def __init__(self) -> None:
        self._hooks = saved_tensors_hooks(_pack, _unpack)

    def __enter__(self) -> None:
        global _depth
        self._hooks.__enter__()
        _depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _depth
        _depth -= 1
        if _depth == 0:
            _sources.clear()
        self._hooks.__exit__(kind, error, trace)


def _pack(tensor: Tensor) -> Any:
    source = _sources.get(storage_of(tensor))
    y = None if source is None else source.y()
    if source is None or y is None or storage_of(y) != storage_of(tensor) or tensor.dtype != y.dtype or y._version:
        kept(tensor)
        return tensor.detach()  # of an output, the tensor itself would hold the graph that holds it
    kept(source.z)
    return _View(source, tensor.size(), tensor.stride(), int(tensor.storage_offset()))


def _unpack(packed: Any) -> Tensor:
    if not isinstance(packed, _View):
        return packed
    return packed.source.again().as_strided(packed.size, packed.stride, packed.offset)
