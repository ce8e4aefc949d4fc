"""What autograd keeps for the backward, counted."""

from types import TracebackType

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

_active: list["SavedTensors"] = []


class SavedTensors:
    """Counts the bytes that the forward within it leaves for the backward, each storage once.

        with SavedTensors(model) as saved:
            loss = model(**batch).loss
        print(saved.bytes)

    Parameters and buffers of `model` do not count: they are there anyway.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        tensors = [] if model is None else [*model.parameters(), *model.buffers()]
        self._known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        self._sizes: dict[int, int] = {}
        self._kept: list[Tensor] = []  # or the next tensor could get the address of one that is gone
        self._hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def see(self, tensor: Tensor) -> None:
        """Counts a tensor that is kept."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._known and storage.data_ptr() not in self._sizes:
            self._sizes[storage.data_ptr()] = storage.nbytes()
            self._kept.append(tensor.detach())

    def _pack(self, tensor: Tensor) -> Tensor:
        self.see(tensor)
        return tensor.detach()  # of an output, the tensor itself would hold the graph that holds it

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
    """Tells those that count: hooks of autograd do not hear of what other hooks within them keep."""
    for counter in _active:
        counter.see(tensor)


def storage_of(tensor: Tensor) -> int:
    """The address of a tensor's storage, 0 of one that has none."""
    return 0 if tensor.is_meta else tensor.untyped_storage().data_ptr()
