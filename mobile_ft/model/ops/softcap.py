"""`softcap`: cap * tanh(x / cap), the limit of Gemma 2's logits in generation; losses have it in their own op."""

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_op


def _reference(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


def _fake(x: Tensor, cap: float) -> Tensor:
    return torch.empty_like(x)


softcap = define_op("softcap(Tensor x, float cap) -> Tensor", _reference, _fake)
