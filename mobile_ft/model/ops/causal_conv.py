"""The short convolution of each column before a recurrence, as the references of ops compute it."""

import torch
from torch import Tensor


def causal_conv(x: Tensor, before: Tensor, taps: Tensor, positions: Tensor) -> Tensor:
    """x [T, C], taps [L, C] with the oldest token first -> y [T, C].

        y[t] = sum over j of taps[L - 1 - j] * x[t - j],  j = 0 .. min(L - 1, positions[t])

    `before` [L - 1, C] has the tokens before x.
    """
    t, length = x.shape[0], taps.shape[0]
    all_tokens = torch.cat([before, x])
    y = torch.zeros_like(x)
    for j in range(length):
        seen = (positions >= j)[:, None].to(x.dtype)
        y = y + taps[-1 - j] * seen * all_tokens[length - 1 - j : length - 1 - j + t]
    return y
