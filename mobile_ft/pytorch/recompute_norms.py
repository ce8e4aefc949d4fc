"""Applies a norm's weight again in the backward instead of keeping the norm's output.

Autograd keeps the input of a linear layer, which is a norm's output y = z w + b, or under autocast a copy of it in
fewer bits. The norm keeps z. Within `RecomputeNorms`, every function that would keep y, or a view or copy of y, keeps z
and recomputes y.
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

# Nodes of the graph that preserve a contiguous tensor's values and their order, except for rounding.
_COPIES = {"ToCopyBackward0", "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"}


@dataclass
class _Source:
    """The tensors from which a y was computed."""

    z: Tensor
    weight: Tensor | None
    bias: Tensor | None
    dtype: torch.dtype  # dtype of y
    y: "weakref.ref[Tensor]"
    versions: tuple[int, ...]

    def again(self) -> Tensor:
        if _versions(self.z, self.weight, self.bias) != self.versions:
            raise RuntimeError("a norm's weight was changed between forward and backward")
        with torch.no_grad():
            return times(self.z.to(self.dtype), self.weight, self.bias)


@dataclass
class _View:
    """A view of y, or of a copy of y in another dtype."""

    source: _Source
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


def times(z: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = z if weight is None else z * weight
    return y if bias is None else y + bias


def _versions(*tensors: Tensor | None) -> tuple[int, ...]:
    return tuple(t._version for t in tensors if t is not None)


_sources: dict[int, _Source] = {}  # by the storage of y, while y exists
_nodes: dict[int, _Source] = {}  # the same, by the node of the graph that computed y


def remember(y: Tensor, z: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Records that y is z w + b, so that `RecomputeNorms` keeps only z.

    z has the shape of y, and the dtype of x or a smaller one.
    """
    if not (_depth and y.is_contiguous() and torch.is_grad_enabled() and y.grad_fn is not None):
        return
    key, node = storage_of(y), id(y.grad_fn)

    def forget(
        dead: "weakref.ref[Tensor]",
    ) -> None:  # without it, the z of every norm would be kept until the forward ends
        for known, name in ((_sources, key), (_nodes, node)):
            if name in known and known[name].y is dead:
                del known[name]

    source = _Source(z.detach(), weight, bias, y.dtype, weakref.ref(y, forget), _versions(z, weight, bias))
    _sources[key] = _nodes[node] = source


_depth = 0


class RecomputeNorms(AbstractContextManager[None]):
    """Context manager around a model's forward."""

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
            _nodes.clear()
        self._hooks.__exit__(kind, error, trace)


def _source_of(tensor: Tensor) -> _Source | None:
    """Returns the source of the y that the tensor is, or of which it is a view or copy."""
    source = _sources.get(storage_of(tensor))
    y = None if source is None else source.y()
    if y is not None and storage_of(y) == storage_of(tensor) and tensor.dtype == y.dtype and not y._version:
        return source
    node: Any = tensor.grad_fn
    if not tensor.is_contiguous() or tensor._version:
        return None
    while node is not None and node.name() in _COPIES:
        node = node.next_functions[0][0]
    source = _nodes.get(id(node))
    y = None if source is None else source.y()
    return source if y is not None and y.numel() == tensor.numel() and not y._version else None


def _pack(tensor: Tensor) -> Any:
    source = _source_of(tensor)
    if source is None:
        kept(tensor)
        return tensor.detach()  # detached, because an output would refer to the graph that refers to it
    kept(source.z)
    return _View(source, tensor.dtype, tensor.size(), tensor.stride(), int(tensor.storage_offset()))


def _unpack(packed: Any) -> Tensor:
    if not isinstance(packed, _View):
        return packed
    y = packed.source.again().to(packed.dtype)
    return y.as_strided(packed.size, packed.stride, packed.offset)
