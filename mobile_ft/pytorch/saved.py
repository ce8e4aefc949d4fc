"""Counts the memory that autograd keeps for the backward."""

from types import TracebackType

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

_active: list["SavedTensors"] = []


class SavedTensors:
    """Counts the bytes that a forward keeps for the backward. Each storage counts once.

        with SavedTensors(model) as saved:
            loss = model(**batch).loss
        print(saved.bytes)

    Parameters and buffers of `model` do not count, because they exist anyway.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        tensors = [] if model is None else [*model.parameters(), *model.buffers()]
        self._known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        self._sizes: dict[int, int] = {}
        self._kept: list[Tensor] = []  # kept alive, because a new tensor could reuse the address of a freed one
        self._hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def see(self, tensor: Tensor) -> None:
        """Counts a kept tensor."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._known and storage.data_ptr() not in self._sizes:
            self._sizes[storage.data_ptr()] = storage.nbytes()
            self._kept.append(tensor.detach())

    def _pack(self, tensor: Tensor) -> Tensor:
        self.see(tensor)
        return tensor.detach()  # detached, because an output would refer to the graph that refers to it

    def __enter__(self) -> "SavedTensors":
        self._hooks.__enter__()
        _active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.remove(self)
        self._hooks.__exit__(kind, error, trace)
        self._kept.clear()


def kept(tensor: Tensor) -> None:
    """Reports a kept tensor to the active counters, because autograd's hooks are not called for tensors that inner
    hooks keep."""
    for counter in _active:
        counter.see(tensor)


def storage_of(tensor: Tensor) -> int:
    """Returns the address of a tensor's storage, or 0 if it has none."""
    return 0 if tensor.is_meta else tensor.untyped_storage().data_ptr()
