"""The ops' backward formulas against autograd through plain PyTorch, in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mobile_ft import ops
from mobile_ft.formats import FORMATS, unpack
from tests.mobile_ft.test_formats import random_weight


def random(*shape: int, grad: bool = True) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def check(actual: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """Same value, and the same gradients under a random weighting of the outputs."""
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    ours = torch.autograd.grad((actual * weight).sum(), inputs)
    theirs = torch.autograd.grad((expected * weight).sum(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("with_lora", [False, True])
def test_linear_q4(fmt: str, with_lora: bool) -> None:
    weight = torch.from_numpy(random_weight(fmt, 20, 128)[0].data)
    dense = torch.from_numpy(unpack(weight.numpy(), fmt, 20)).double()
    x, a, b = random(5, 128), random(3, 128), random(20, 3)
    expected = x @ dense.T + (2.0 * (x @ a.T) @ b.T if with_lora else 0.0)
    lora = (a, b) if with_lora else (None, None)
    check(ops.linear_q4(x, weight, fmt, 20, *lora, 2.0), expected, [x, a, b] if with_lora else [x])


def test_rms_norm() -> None:
    x, weight = random(5, 32), random(32, grad=False)
    expected = torch.nn.functional.rms_norm(x, (32,), weight, 1e-5)
    check(ops.rms_norm(x, weight, 1e-5)[0], expected, [x])


def test_add() -> None:
    x, y = random(5, 32), random(5, 32)
    check(ops.add(x, y), x + y, [x, y])


def test_swiglu() -> None:
    gate, up = random(5, 32), random(5, 32)
    check(ops.swiglu(gate, up), torch.nn.functional.silu(gate) * up, [gate, up])


def test_rope() -> None:
    heads, dim = 3, 16
    x, positions = random(6, heads * dim), torch.tensor([0, 1, 2, 0, 1, 2])
    inv_freq = 1.0 / 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.cat([positions[:, None] * inv_freq] * 2, -1)[:, None]
    heads_x = x.reshape(6, heads, dim)
    rotated = torch.cat([-heads_x[..., dim // 2 :], heads_x[..., : dim // 2]], -1)
    expected = (heads_x * angle.cos() + rotated * angle.sin()).reshape(6, -1)
    check(ops.rope(x, positions, inv_freq, heads, False), expected, [x])


@pytest.mark.parametrize("positions", [[0, 1, 2, 3, 4, 5, 6], [0, 1, 0, 1, 2, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
def test_attention(positions: list[int]) -> None:
    t, heads, kv_heads, dim = 7, 6, 2, 8
    q, k, v = random(t, heads * dim), random(t, kv_heads * dim), random(t, kv_heads * dim)
    rows = np.cumsum(np.array(positions) == 0)
    mask = torch.from_numpy((rows[:, None] == rows[None]) & np.tri(t, dtype=bool))

    def heads_first(x: Tensor, n: int) -> Tensor:
        return x.reshape(t, n, dim).transpose(0, 1).repeat_interleave(heads // n, 0)

    expected = torch.nn.functional.scaled_dot_product_attention(
        heads_first(q, heads), heads_first(k, kv_heads), heads_first(v, kv_heads), attn_mask=mask
    )
    o, lse = ops.attention(q, k, v, torch.tensor(positions), heads, kv_heads)
    check(o, expected.transpose(0, 1).reshape(t, -1), [q, k, v])
    scores = heads_first(q, heads) @ heads_first(k, kv_heads).transpose(1, 2) / math.sqrt(dim)
    torch.testing.assert_close(lse, scores.masked_fill(~mask, -math.inf).logsumexp(-1))


def test_attention_decode_continues_attention() -> None:
    q, k, v = random(6, 32, grad=False), random(6, 16, grad=False), random(6, 16, grad=False)
    whole, _ = ops.attention(q, k, v, torch.arange(6), 4, 2)
    caches = [torch.cat([x[:4], torch.full((4, 16), math.nan, dtype=x.dtype)]) for x in (k, v)]
    rest = ops.attention_decode(q[4:], k[4:], v[4:], *caches, torch.arange(4, 6), 4, 2)
    torch.testing.assert_close(rest, whole[4:])


def test_linear_cross_entropy() -> None:
    packed, values = random_weight("q8_0", 40, 64, scale=0.01)
    weight, dense = torch.from_numpy(packed.data), torch.from_numpy(values)
    x, targets = random(5, 64), torch.tensor([3, -100, 39, 0, -100])
    expected = torch.nn.functional.cross_entropy(x @ dense.T, targets, reduction="sum", ignore_index=-100)
    loss, dx = ops.linear_cross_entropy(x.detach(), weight, "q8_0", 40, targets)
    torch.testing.assert_close(loss[0], expected)
    torch.testing.assert_close(dx, torch.autograd.grad(expected, x)[0])
    assert torch.equal(ops.linear_cross_entropy_loss(x.detach(), weight, "q8_0", 40, targets), loss)


def test_embedding_q() -> None:
    packed, values = random_weight("q4_0", 40, 64)
    table, dense = torch.from_numpy(packed.data), torch.from_numpy(values).float()
    tokens = torch.tensor([0, 39, 7, 7])
    assert torch.equal(ops.embedding_q(tokens, table, "q4_0", 40), dense[tokens])


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        (ops.swiglu, (torch.randn(4, 8), torch.randn(4, 8))),
        (ops.swiglu_backward, (torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8))),
        (ops.rms_norm, (torch.randn(4, 8), torch.randn(8), 1e-5)),
        (ops.rope, (torch.randn(4, 32), torch.arange(4), torch.rand(8), 2, False)),
        (ops.attention, (torch.randn(4, 32), torch.randn(4, 16), torch.randn(4, 16), torch.arange(4), 4, 2)),
    ],
)
def test_fakes_give_the_shapes(op: torch._ops.OpOverloadPacket, arguments: tuple) -> None:
    torch.library.opcheck(op.default, arguments, test_utils=("test_schema", "test_faketensor"))
