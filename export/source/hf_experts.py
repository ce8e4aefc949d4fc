"""Reads the matrices of all experts from a checkpoint with Hugging Face's names.

The runtime has the rows of all experts in one matrix. There are three forms of it: the matrices of each expert apart,
as most files have them; one tensor [experts, rows, columns], as Granite's files have it; and so in Transformers' models
in memory, under the name of the matrix.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mobile_ft.export.quantizer.tensors import FLOATS, Tensors, numbers
from mobile_ft.model.formats import F32

Read = Callable[[int, int], F32]  # reads rows (start, stop)


def expert_rows(
    tensors: Tensors, prefix: str, module: str, parts: tuple[str, ...], shape: tuple[int, int, int]
) -> tuple[str, Read]:
    """Returns a matrix's type in the files, and a function that reads its rows.

    `prefix` is the layer's in the files. `parts` has the names of the parts of each expert's rows, with {} for the
    expert's number, or the name of the whole tensor. `shape` is experts, rows of an expert, and columns. Raises
    UserError if a tensor is missing or has another shape.
    """
    experts, rows, columns = shape
    whole = prefix + module if prefix + module in tensors.names else f"{prefix}{parts[0]}.weight"
    if "{}" in whole:
        names = [f"{prefix}{part.format(expert)}.weight" for expert in range(experts) for part in parts]
        matrices = [tensors.get(name, FLOATS, [rows // len(parts), columns]) for name in names]
        return matrices[0].get_dtype(), _stacked([partial(_slice, matrix) for matrix in matrices], rows // len(parts))
    tensor = tensors.get(whole, FLOATS, [experts, rows, columns])
    return tensor.get_dtype(), _stacked([partial(_slice_of_expert, tensor, expert) for expert in range(experts)], rows)


def _slice(matrix: Any, start: int, stop: int) -> Any:
    return matrix[start:stop]


def _slice_of_expert(tensor: Any, expert: int, start: int, stop: int) -> Any:
    return tensor[expert : expert + 1][0, start:stop]


def _stacked(pieces: list[Callable[[int, int], Any]], rows: int) -> Read:
    """Returns a function that reads rows of a matrix whose pieces, one below the other, have so many rows each."""

    def read(start: int, stop: int) -> F32:
        found = []
        while start < stop:
            piece, first = divmod(start, rows)
            last = min(rows, first + stop - start)
            found.append(numbers(pieces[piece](first, last)))
            start += last - first
        return np.concatenate(found)

    return read
