"""`attention`: causal attention with grouped heads over packed rows, on [T, heads * dim].

Query i sees keys i - positions[i] .. i. A position of 0 starts a row, so rows packed into one sequence do not see each
other. A sliding window keeps only the keys j with i - window < j; 0 means no window.

The score of a query and a key is scale q . k. With a softcap c (Gemma 2; 0: none), it is c tanh(scale q . k / c).
`sinks` [heads] are the scores of one more key per head, which every query sees and which has no value (arXiv
2309.17453).

Only o and the log-sum-exp of each query and head are saved; the backward recomputes the scores.
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


def _scores(q: Tensor, k: Tensor, heads: int, kv_heads: int, scale: float, softcap: float, mask: Tensor) -> Tensor:
    """Returns masked scores [heads, T, S]."""
    queries = q.reshape(q.shape[0], heads, -1)
    keys = k.reshape(k.shape[0], kv_heads, -1).repeat_interleave(heads // kv_heads, 1)
    scores = scale * torch.einsum("thd,shd->hts", queries, keys)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return scores.masked_fill(~mask, -math.inf)


def _log_sum(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Returns the log-sum-exp [heads, T] of a query's scores and its head's sink."""
    lse = scores.logsumexp(-1)
    return lse if sinks is None else torch.logaddexp(lse, sinks[:, None].to(lse.dtype))


def _weighted(p: Tensor, v: Tensor, heads: int, kv_heads: int) -> Tensor:
    """Returns the sums [T, heads * dim] of values v by weights p [heads, T, S]."""
    values = v.reshape(v.shape[0], kv_heads, -1).repeat_interleave(heads // kv_heads, 1)
    return torch.einsum("hts,shd->thd", p, values).reshape(p.shape[1], -1)


def _reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    heads: int,
    kv_heads: int,
    window: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, heads, kv_heads, scale, softcap, _mask(positions, window))
    lse = _log_sum(scores, sinks)
    return _weighted((scores - lse[..., None]).exp(), v, heads, kv_heads), lse


def _fake(q: Tensor, k: Tensor, v: Tensor, positions: Tensor, heads: int, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), q.new_empty((heads, q.shape[0]))


_SHAPE = "int heads, int kv_heads, int window, float scale, float softcap"
attention = define_op(
    f"attention(Tensor q, Tensor k, Tensor v, Tensor positions, {_SHAPE}, Tensor? sinks) -> (Tensor, Tensor)",
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
    window: int,
    scale: float,
    softcap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    t, group = q.shape[0], heads // kv_heads
    mask = _mask(positions, window)
    scores = _scores(q, k, heads, kv_heads, scale, softcap, mask)
    p = (scores - lse[..., None]).exp()
    queries, keys = q.reshape(t, heads, -1), k.reshape(t, kv_heads, -1).repeat_interleave(group, 1)
    values = v.reshape(t, kv_heads, -1).repeat_interleave(group, 1)
    grad = do.reshape(t, heads, -1)
    dp = torch.einsum("thd,shd->hts", grad, values)
    ds = scale * p * (dp - (grad * o.reshape(t, heads, -1)).sum(-1).T[..., None])
    if softcap:
        ds = ds * (1 - (scores.masked_fill(~mask, 0) / softcap) ** 2)
    dq = torch.einsum("hts,shd->thd", ds, keys).reshape(q.shape)
    dk = torch.einsum("hts,thd->shd", ds, queries).reshape(t, kv_heads, group, -1).sum(2)
    dv = torch.einsum("hts,thd->shd", p, grad).reshape(t, kv_heads, group, -1).sum(2)
    return dq, dk.reshape(k.shape), dv.reshape(v.shape)


def _backward_fake(do: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


attention_backward = define_op(
    "attention_backward(Tensor do, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor positions, "
    f"{_SHAPE}) -> (Tensor, Tensor, Tensor)",
    _backward_reference,
    _backward_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, positions, *ctx.shape, _ = inputs  # sinks only change the log-sum-exp
    ctx.save_for_backward(q, k, v, *output, positions)


def _autograd(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Any, ...]:
    q, k, v, o, lse, positions = ctx.saved_tensors
    return *attention_backward(do, q, k, v, o, lse, positions, *ctx.shape), *[None] * 7


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
    window: int,
    scale: float,
    softcap: float,
    sinks: Tensor | None,
) -> Tensor:
    past = int(positions[0])
    keys, values = torch.cat([k_cache[:past], k]), torch.cat([v_cache[:past], v])
    mask = _causal(positions, torch.arange(past + k.shape[0]), window)
    scores = _scores(q, keys, heads, kv_heads, scale, softcap, mask)
    return _weighted((scores - _log_sum(scores, sinks)[..., None]).exp(), values, heads, kv_heads)


def _decode_fake(q: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(q)


# Generation: T new tokens of one sequence after positions[0] cached tokens. The op only reads the cache; the runtime
# appends the new keys and values.
attention_decode = define_op(
    "attention_decode(Tensor q, Tensor k, Tensor v, Tensor k_cache, Tensor v_cache, Tensor positions, "
    f"{_SHAPE}, Tensor? sinks) -> Tensor",
    _decode_reference,
    _decode_fake,
)
