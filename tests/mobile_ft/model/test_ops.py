"""The ops' backward formulas against autograd through plain PyTorch, in float64."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from mobile_ft.model import ops
from mobile_ft.model.formats import FORMATS, unpack
from mobile_ft.model.ops.glu_2bit import REGELU2, RESILU2, ReluCombination
from tests.mobile_ft.model.test_formats import random_weight


def random(*shape: int, scale: float = 1.0, grad: bool = True) -> Tensor:
    return (scale * torch.randn(*shape, dtype=torch.float64)).requires_grad_(grad)


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
def test_packed_linear(fmt: str, with_lora: bool) -> None:
    weight = torch.from_numpy(random_weight(fmt, 20, 128)[0].data)
    dense = torch.from_numpy(unpack(weight.numpy(), fmt, 20)).double()
    x, a, b = random(5, 128), random(3, 128), random(20, 3)
    expected = x @ dense.T + (2.0 * (x @ a.T) @ b.T if with_lora else 0.0)
    lora = (a, b) if with_lora else (None, None)
    check(ops.packed_linear(x, weight, fmt, 20, *lora, 2.0), expected, [x, a, b] if with_lora else [x])


def test_rms_norm() -> None:
    x, weight = random(5, 32), random(32, grad=False)
    expected = torch.nn.functional.rms_norm(x, (32,), weight, 1e-5)
    check(ops.rms_norm(x, weight, 1e-5)[0], expected, [x])


def test_rms_norm_of_heads() -> None:
    x, weight = random(5, 32), random(8, grad=False)
    expected = torch.nn.functional.rms_norm(x.reshape(5, 4, 8), (8,), weight, 1e-5).reshape(5, 32)
    y, rstd = ops.rms_norm(x, weight, 1e-5)
    check(y, expected, [x])
    assert rstd.shape == (5, 4)


def test_add_bias() -> None:
    x, bias = random(5, 32), random(32, grad=False)
    check(ops.add_bias(x, bias), x + bias, [x])


def test_add() -> None:
    x, y = random(5, 32), random(5, 32)
    check(ops.add(x, y), x + y, [x, y])


def test_affine() -> None:
    z, weight = random(5, 32), random(32, grad=False)
    check(ops.affine(z, weight), z * weight, [z])


def test_ms_rms_norm() -> None:
    x = random(5, 32)
    check(ops.ms_rms_norm(x, 1e-5)[0], torch.nn.functional.rms_norm(x, (32,), eps=1e-5), [x])


def test_ms_rms_norm_saves_its_output_only() -> None:
    z, rstd = ops.ms_rms_norm(random(5, 32), 1e-5)
    saved = {t.data_ptr() for t in z.grad_fn.saved_tensors}
    assert saved == {z.data_ptr(), rstd.data_ptr()}


def gelu(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


@pytest.mark.parametrize(
    ("op", "act"), [(ops.swiglu, torch.nn.functional.silu), (ops.geglu, gelu)], ids=["swiglu", "geglu"]
)
def test_glu(op: torch._ops.OpOverloadPacket, act: Callable[[Tensor], Tensor]) -> None:
    gate, up = random(5, 32, scale=3.0), random(5, 32)
    check(op(gate, up), act(gate) * up, [gate, up])


GLU_2BIT = [(ops.swiglu_2bit, torch.nn.functional.silu, RESILU2), (ops.geglu_2bit, gelu, REGELU2)]


@pytest.mark.parametrize(("op", "act", "combination"), GLU_2BIT, ids=["swiglu", "geglu"])
@pytest.mark.parametrize("size", [(5, 32), (3, 7)])
def test_glu_2bit(
    op: torch._ops.OpOverloadPacket, act: Callable[[Tensor], Tensor], combination: ReluCombination, size: tuple
) -> None:
    """The value of the activation, the gradient of its combination of ReLUs."""
    gate, up = random(*size, scale=5.0), random(*size)
    relus = (a * (gate - c).relu() for a, c in zip(combination.a, combination.c, strict=True))
    h = sum(relus, torch.tensor(0))
    y, codes = op(gate, up)
    check(y, (act(gate).detach() + h - h.detach()) * up, [gate, up])

    expected = sum(((gate > c).int() for c in combination.c), torch.tensor(0)).tolist()
    assert {code for row in expected for code in row} == {0, 1, 2, 3}  # every interval has some
    assert codes.dtype == torch.uint8 and codes.shape == (size[0], (size[1] + 3) // 4)
    unpacked = [[byte >> shift & 3 for byte in row for shift in (0, 2, 4, 6)] for row in codes.tolist()]
    assert [row[: size[1]] for row in unpacked] == expected


@pytest.mark.parametrize(("op", "act", "combination"), GLU_2BIT, ids=["swiglu", "geglu"])
def test_glu_2bit_saves_what_the_docstring_says(
    op: torch._ops.OpOverloadPacket, act: Callable[[Tensor], Tensor], combination: ReluCombination
) -> None:
    up = random(5, 32)
    y, codes = op(random(5, 32), up)
    assert {t.data_ptr() for t in y.grad_fn.saved_tensors} == {t.data_ptr() for t in (up, y, codes)}
    assert not codes.requires_grad


@pytest.mark.parametrize(("op", "act", "combination"), GLU_2BIT, ids=["swiglu", "geglu"])
def test_glu_2bit_where_up_is_zero(
    op: torch._ops.OpOverloadPacket, act: Callable[[Tensor], Tensor], combination: ReluCombination
) -> None:
    gate, up = random(2, 4), torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    dgate, dup = torch.autograd.grad(op(gate, up)[0].sum(), [gate, up])
    assert not dgate.any() and not dup.any()


@pytest.mark.parametrize(("op", "act", "combination"), GLU_2BIT, ids=["swiglu", "geglu"])
def test_relu_combinations_are_fitted(
    op: torch._ops.OpOverloadPacket, act: Callable[[Tensor], Tensor], combination: ReluCombination
) -> None:
    """No constant can be moved without more L2 distance, so none is mistyped."""
    x = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    target = torch.nn.functional.gelu(x) if act is gelu else act(x)  # the paper fits the exact gelu

    def distance(a: list[float], c: list[float]) -> float:
        last = 1 - a[0] - a[1]
        relus = (w * (x - t).relu() for w, t in zip([*a, last], c, strict=True))
        return float(sum(relus, torch.tensor(0)).sub(target).square().sum())

    a, c = list(combination.a[:2]), list(combination.c)
    assert math.isclose(sum(combination.a), 1)
    assert abs(sum(w * t for w, t in zip(combination.a, c, strict=True))) < 1e-3  # h(x) is x on the far right
    best = distance(a, c)
    for step in (-0.02, 0.02):
        for i in range(3):
            assert distance(a, [t + step * (j == i) for j, t in enumerate(c)]) > best
        for i in range(2):
            assert distance([w + step / 10 * (j == i) for j, w in enumerate(a)], c) > best


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("pairs", [8, 3])
def test_rope(interleaved: bool, pairs: int) -> None:
    heads, dim = 3, 16
    x, positions = random(6, heads * dim), torch.tensor([0, 1, 2, 0, 1, 2])
    inv_freq = 1.0 / 10000.0 ** (torch.arange(pairs, dtype=torch.float64) / pairs)
    angle = (positions[:, None] * inv_freq)[:, None]
    turned = x.reshape(6, heads, dim)[..., : 2 * pairs]
    numbers = turned.unflatten(-1, (pairs, 2) if interleaved else (2, pairs))
    pair = torch.complex(*numbers.unbind(-1 if interleaved else -2)) * torch.polar(torch.full_like(angle, 1.5), angle)
    turned = torch.stack([pair.real, pair.imag], -1 if interleaved else -2).flatten(-2)
    expected = torch.cat([turned, x.reshape(6, heads, dim)[..., 2 * pairs :]], -1).reshape(6, -1)
    check(ops.rope(x, positions, inv_freq, heads, False, interleaved, 1.5), expected, [x])


def test_split() -> None:
    x = random(5, 24)
    a, b = ops.split(x, 2, 5)
    parts = x.reshape(5, 2, 12)
    expected = [parts[..., :5].reshape(5, 10), parts[..., 5:].reshape(5, 14)]
    check(torch.cat([a, 2 * b], 1), torch.cat([expected[0], 2 * expected[1]], 1), [x])
    torch.testing.assert_close(ops.join(a, b, 2), x)


@pytest.mark.parametrize("gates", [1, 3, 24])
def test_sigmoid_gate(gates: int) -> None:
    x, gate = random(5, 24), random(5, gates, scale=3.0)
    expected = (x.reshape(5, gates, -1) * gate.sigmoid()[..., None]).reshape(5, 24)
    check(ops.sigmoid_gate(x, gate), expected, [x, gate])


def test_relu2() -> None:
    x = random(5, 32)
    check(ops.relu2(x), torch.nn.functional.relu(x).square(), [x])


def test_softcap() -> None:
    x = random(5, 32, scale=40.0, grad=False)
    torch.testing.assert_close(ops.softcap(x, 30.0), 30 * torch.tanh(x / 30))


# window, scale, softcap, and whether there are sinks
ATTENTION = [
    *((window, 8**-0.5, 0.0, False) for window in (0, 1, 3, 7)),
    (0, 1.3, 0.7, False),
    (3, 0.2, 0.0, True),
    (0, 1.0, 2.0, True),
]


@pytest.mark.parametrize("positions", [[0, 1, 2, 3, 4, 5, 6], [0, 1, 0, 1, 2, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
@pytest.mark.parametrize(("window", "scale", "softcap", "with_sinks"), ATTENTION)
def test_attention(positions: list[int], window: int, scale: float, softcap: float, with_sinks: bool) -> None:
    t, heads, kv_heads, dim = 7, 6, 2, 8
    q, k, v = random(t, heads * dim), random(t, kv_heads * dim), random(t, kv_heads * dim)
    sinks = random(heads, grad=False) if with_sinks else None
    rows = np.cumsum(np.array(positions) == 0)
    mask = torch.from_numpy((rows[:, None] == rows[None]) & np.tri(t, dtype=bool))
    if window:
        mask &= torch.ones(t, t, dtype=torch.bool).triu(1 - window)

    def heads_first(x: Tensor, n: int) -> Tensor:
        return x.reshape(t, n, dim).transpose(0, 1).repeat_interleave(heads // n, 0)

    scores = scale * heads_first(q, heads) @ heads_first(k, kv_heads).transpose(1, 2)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores.masked_fill(~mask, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(heads, t, 1)], -1)
    expected = scores.softmax(-1)[..., :t] @ heads_first(v, kv_heads)
    settings = (heads, kv_heads, window, scale, softcap, sinks)
    o, lse = ops.attention(q, k, v, torch.tensor(positions), *settings)
    check(o, expected.transpose(0, 1).reshape(t, -1), [q, k, v])
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize(("window", "scale", "softcap", "with_sinks"), ATTENTION)
def test_attention_decode_continues_attention(window: int, scale: float, softcap: float, with_sinks: bool) -> None:
    q, k, v = random(6, 32, grad=False), random(6, 16, grad=False), random(6, 16, grad=False)
    settings = (4, 2, window, scale, softcap, random(4, grad=False) if with_sinks else None)
    whole, _ = ops.attention(q, k, v, torch.arange(6), *settings)
    caches = [torch.cat([x[:4], torch.full((4, 16), math.nan, dtype=x.dtype)]) for x in (k, v)]
    rest = ops.attention_decode(q[4:], k[4:], v[4:], *caches, torch.arange(4, 6), *settings)
    torch.testing.assert_close(rest, whole[4:])


@pytest.mark.parametrize("taps", [2, 3, 5])
@pytest.mark.parametrize("rows", [[9], [4, 1, 1, 3], [1, 2]])
def test_short_conv(taps: int, rows: list[int]) -> None:
    """Each row as PyTorch's depthwise convolution has it."""
    bcx, weight = random(sum(rows), 24), random(taps, 8, grad=False)
    expected = []
    for row in bcx.split(rows):
        b, c, x = row.chunk(3, 1)
        v = torch.nn.functional.conv1d((b * x).T[None], weight.T[:, None], padding=taps - 1, groups=8)
        expected.append(c * v[0, :, : len(row)].T)
    positions = torch.cat([torch.arange(n) for n in rows])
    check(ops.short_conv(bcx, weight, positions), torch.cat(expected), [bcx])


@pytest.mark.parametrize("piece", [1, 2, 5])
def test_short_conv_decode_continues_short_conv(piece: int) -> None:
    bcx, weight = random(9, 24, grad=False), random(3, 8, grad=False)
    state, pieces = random(2, 8, grad=False), []  # positions say that none of it counts
    for i in range(0, 9, piece):
        places = torch.arange(i, min(i + piece, 9))
        y, state = ops.short_conv_decode(bcx[places], weight, state, places)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces), ops.short_conv(bcx, weight, torch.arange(9)))


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_linear_cross_entropy(softcap: float) -> None:
    packed, values = random_weight("q8_0", 40, 64, scale=0.01)
    weight, dense = torch.from_numpy(packed.data), torch.from_numpy(values)
    x, targets = random(5, 64), torch.tensor([3, -100, 39, 0, -100])
    logits = softcap * torch.tanh(x @ dense.T / softcap) if softcap else x @ dense.T
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none", ignore_index=-100)
    losses, dx = ops.linear_cross_entropy(x.detach(), weight, "q8_0", 40, targets, softcap)
    torch.testing.assert_close(losses, expected)
    assert losses[1] == losses[4] == 0
    torch.testing.assert_close(dx, torch.autograd.grad(expected.sum(), x)[0])
    assert torch.equal(ops.linear_cross_entropy_loss(x.detach(), weight, "q8_0", 40, targets, softcap), losses)


def test_packed_embedding() -> None:
    packed, values = random_weight("q4_0", 40, 64)
    table, dense = torch.from_numpy(packed.data), torch.from_numpy(values).float()
    tokens = torch.tensor([0, 39, 7, 7])
    for scale in (1.0, 2.5):
        assert torch.equal(ops.packed_embedding(tokens, table, "q4_0", 40, scale), scale * dense[tokens])


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        (ops.swiglu, (torch.randn(4, 8), torch.randn(4, 8))),
        (ops.swiglu_backward, (torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8))),
        (ops.geglu, (torch.randn(4, 8), torch.randn(4, 8))),
        (ops.geglu_backward, (torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8))),
        (ops.swiglu_2bit, (torch.randn(3, 7), torch.randn(3, 7))),
        (ops.geglu_2bit, (torch.randn(3, 7), torch.randn(3, 7))),
        (
            ops.swiglu_2bit_backward,
            (torch.randn(3, 7), torch.randn(3, 7), torch.randn(3, 7), torch.zeros(3, 2, dtype=torch.uint8)),
        ),
        (ops.ms_rms_norm, (torch.randn(4, 8), 1e-5)),
        (ops.ms_rms_norm_backward, (torch.randn(4, 8), torch.randn(4, 8), torch.rand(4))),
        (ops.affine, (torch.randn(4, 8), torch.randn(8))),
        (ops.rms_norm, (torch.randn(4, 8), torch.randn(8), 1e-5)),
        (ops.rms_norm, (torch.randn(4, 8), torch.randn(2), 1e-5)),
        (ops.rms_norm_backward, (torch.randn(4, 8), torch.randn(4, 8), torch.randn(2), torch.rand(4, 4))),
        (ops.add_bias, (torch.randn(4, 8), torch.randn(8))),
        (ops.rope, (torch.randn(4, 32), torch.arange(4), torch.rand(8), 2, False, False, 1.0)),
        (ops.split, (torch.randn(4, 24), 2, 5)),
        (ops.join, (torch.randn(4, 8), torch.randn(4, 16), 2)),
        (ops.sigmoid_gate, (torch.randn(4, 24), torch.randn(4, 3))),
        (ops.sigmoid_gate_backward, (torch.randn(4, 24), torch.randn(4, 24), torch.randn(4, 3))),
        (ops.relu2, (torch.randn(4, 24),)),
        (ops.relu2_backward, (torch.randn(4, 24), torch.randn(4, 24))),
        (ops.softcap, (torch.randn(4, 24), 2.0)),
        (ops.short_conv, (torch.randn(4, 24), torch.randn(3, 8), torch.arange(4))),
        (ops.short_conv_backward, (torch.randn(4, 8), torch.randn(4, 24), torch.randn(3, 8), torch.arange(4))),
        (ops.short_conv_decode, (torch.randn(4, 24), torch.randn(3, 8), torch.randn(2, 8), torch.arange(4))),
        (
            ops.attention,
            (torch.randn(4, 32), *torch.randn(2, 4, 16), torch.arange(4), 4, 2, 3, 0.5, 0.0, torch.randn(4)),
        ),
    ],
)
def test_fakes_give_the_shapes(op: torch._ops.OpOverloadPacket, arguments: tuple) -> None:
    torch.library.opcheck(op.default, arguments, test_utils=("test_schema", "test_faketensor"))
