"""`attention`: causal attention with grouped heads over packed rows, on [T, heads * dim].

Query i sees keys i - positions[i] .. i. A position of 0 starts a row, so rows packed into one sequence do not see each
other. A sliding window keeps only the keys j with i - window < j; 0 means no window. Only o and the log-sum-exp of each
query and head are saved; the backward recomputes the scores.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mobile_ft.model.ops.define import define_autograd, define_op


def _causal(queries: Tensor, keys: Tensor, window: int) -> Tensor:
    """Returns the mask [queries, keys] from the indices of both in the sequence."""
    distance = queries[:, None] - keys[None]
    return (distance >= 0) & (distance < window) if window else distance >= 0


def _mask(positions: Tensor, window: int) -> Tensor:
    i = torch.arange(positions.shape[0])
    return _causal(i, i, window) & (i[None] >= (i - positions)[:, None])


def _scores(q: Tensor, k: Tensor, heads: int, kv_heads: int, mask: Tensor) -> Tensor:
    """Returns scaled, masked scores [heads, T, S]."""
    queries = q.reshape(q.shape[0], heads, -1)
    keys = k.reshape(k.shape[0], kv_heads, -1).repeat_interleave(heads // kv_heads, 1)
    scores = torch.einsum("thd,shd->hts", queries, keys) / math.sqrt(queries.shape[-1])
    return scores.masked_fill(~mask, -math.inf)


def _reference(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, heads: int, kv_heads: int, window: int = 0
) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, heads, kv_heads, _mask(positions, window))
    lse = scores.logsumexp(-1)
    values = v.reshape(v.shape[0], kv_heads, -1).repeat_interleave(heads // kv_heads, 1)
    o = torch.einsum("hts,shd->thd", (scores - lse[..., None]).exp(), values)
    return o.reshape(q.shape), lse


def _fake(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, heads: int, kv_heads: int, window: int = 0
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty((heads, q.shape[0]))


attention = define_op(
    "attention(Tensor q, Tensor k, Tensor v, Tensor positions, int heads, int kv_heads, int window=0)"
    " -> (Tensor, Tensor)",
    _reference,
    _fake,
)


def _backward_reference(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    window: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    t, group = q.shape[0], heads // kv_heads
    p = (_scores(q, k, heads, kv_heads, _mask(positions, window)) - lse[..., None]).exp()
    queries, keys = q.reshape(t, heads, -1), k.reshape(t, kv_heads, -1).repeat_interleave(group, 1)
    values = v.reshape(t, kv_heads, -1).repeat_interleave(group, 1)
    grad = do.reshape(t, heads, -1)
    dp = torch.einsum("thd,shd->hts", grad, values)
    ds = p * (dp - (grad * o.reshape(t, heads, -1)).sum(-1).T[..., None]) / math.sqrt(queries.shape[-1])
    dq = torch.einsum("hts,shd->thd", ds, keys).reshape(q.shape)
    dk = torch.einsum("hts,thd->shd", ds, queries).reshape(t, kv_heads, group, -1).sum(2)
    dv = torch.einsum("hts,thd->shd", p, grad).reshape(t, kv_heads, group, -1).sum(2)
    return dq, dk.reshape(k.shape), dv.reshape(v.shape)


def _backward_fake(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    window: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


attention_backward = define_op(
    "attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor positions, int heads,"
    " int kv_heads, int window=0) -> (Tensor, Tensor, Tensor)",
    _backward_reference,
    _backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, positions, *ctx.heads_and_window = inputs
    ctx.save_for_backward(q, k, v, *output, positions)


def _autograd(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Any, ...]:
    q, k, v, o, lse, positions = ctx.saved_tensors
    return *attention_backward(do, q, k, v, o, lse, positions, *ctx.heads_and_window), None, None, None, None


define_autograd("attention", _autograd, _setup)


def _decode_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    window: int = 0,
) -> Tensor:
    past = int(positions[0])
    keys, values = torch.cat([k_cache[:past], k]), torch.cat([v_cache[:past], v])
    mask = _causal(positions, torch.arange(past + k.shape[0]), window)
    p = _scores(q, keys, heads, kv_heads, mask).softmax(-1)
    values = values.reshape(values.shape[0], kv_heads, -1).repeat_interleave(heads // kv_heads, 1)
    return torch.einsum("hts,shd->thd", p, values).reshape(q.shape)


def _decode_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    window: int = 0,
) -> Tensor:
    return torch.empty_like(q)


# Generation: T new tokens of one sequence after positions[0] cached tokens. The op only reads the cache; the runtime
# appends the new keys and values.
attention_decode = define_op(
    "attention_decode(Tensor q, Tensor k, Tensor v, Tensor k_cache, Tensor v_cache, Tensor positions, int heads,"
    " int kv_heads, int window=0) -> Tensor",
    _decode_reference,
    _decode_fake,
)
