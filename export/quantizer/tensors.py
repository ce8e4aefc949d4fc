"""A checkpoint's tensors by name, with checks of their types and shapes. Subclasses read them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_ft.errors import UserError
from mobile_ft.model.formats import F32

FLOATS = ("F32", "F16", "BF16")


class Tensors(ABC):
    """Tensors that are read slice by slice, so that none must be in memory as a whole."""

    names: Collection[str]

    @abstractmethod
    def where(self, name: str) -> str:
        """Returns the name of the file or model that has, or should have, the tensor."""

    @abstractmethod
    def _open(self, name: str) -> Any:
        """Opens a tensor of `names`, with get_dtype(), get_shape() and slices (torch tensors) as in safetensors."""

    def shape(self, name: str) -> list[int]:
        """Returns a tensor's shape. Raises UserError if there is no such tensor."""
        return list(self._existing(name).get_shape())

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Returns a matrix's shape. Raises UserError if there is no such tensor, or it is not a matrix."""
        shape = self.shape(name)
        if len(shape) != 2:
            raise UserError(f"{self.where(name)}: tensor {name} has shape {shape}; it must have 2 dimensions")
        return shape[0], shape[1]

    def get(self, name: str, dtypes: tuple[str, ...], shape: list[int]) -> Any:
        """Opens a tensor. Raises UserError if it does not have that shape and one of those dtypes."""
        tensor = self._existing(name)
        if tensor.get_dtype() not in dtypes or list(tensor.get_shape()) != shape:
            wanted = dtypes[0] if len(dtypes) == 1 else f"one of {', '.join(dtypes)},"
            raise UserError(
                f"{self.where(name)}: tensor {name} is {tensor.get_dtype()} {tensor.get_shape()}; it must be "
                f"{wanted} {shape}"
            )
        return tensor

    def _existing(self, name: str) -> Any:
        if name not in self.names:
            raise UserError(f"{self.where(name)}: tensor {name} is missing")
        return self._open(name)


def row_pieces(tensor: Any, start: int, stop: int) -> Iterator[Any]:
    """Yields rows of a matrix, or of all matrices of a tensor [matrices, rows, columns], one below the other."""
    shape = tensor.get_shape()
    if len(shape) == 2:
        yield tensor[start:stop]
        return
    while start < stop:
        matrix, row = divmod(start, shape[1])
        count = min(shape[1] - row, stop - start)
        yield tensor[matrix : matrix + 1][0, row : row + count]
        start += count


def numbers(tensor: Any) -> F32:
    """Converts a torch tensor of any of FLOATS to float32."""
    values: F32 = tensor.float().cpu().numpy()
    return values


def words(tensor: Any) -> npt.NDArray[np.uint32]:
    """Returns the bits of a torch tensor of 32-bit integers."""
    values: npt.NDArray[np.uint32] = np.ascontiguousarray(tensor.cpu().numpy()).view(np.uint32)
    return values
