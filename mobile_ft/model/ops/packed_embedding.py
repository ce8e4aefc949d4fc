"""`packed_embedding`: gathers and decodes rows of a packed table, and multiplies them by `scale`."""

import torch
from torch import Tensor

from mobile_ft.model.formats import parse_format
from mobile_ft.model.ops.define import define_op
from mobile_ft.model.ops.packed_linear import dense


def _reference(tokens: Tensor, table: Tensor, fmt: str, rows: int, scale: float) -> Tensor:
    return dense(table, fmt, rows)[tokens] * scale


def _fake(tokens: Tensor, table: Tensor, fmt: str, rows: int, scale: float) -> Tensor:
    return tokens.new_empty((tokens.shape[0], table.shape[1] * parse_format(fmt).group), dtype=torch.float32)


packed_embedding = define_op(
    "packed_embedding(Tensor tokens, Tensor table, str format, int rows, float scale) -> Tensor", _reference, _fake
)
