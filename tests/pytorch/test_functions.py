"""The functions by themselves, against their formulas."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from mobile_ft.model.ops.glu_2bit import REGELU2, RESILU2, ReluCombination
from mobile_ft.pytorch import ReGELU2, ReSiLU2, SavedTensors, ms_layer_norm, ms_rms_norm
from mobile_ft.pytorch.activations import pack_2bit, unpack_2bit
from mobile_ft.pytorch.recompute_norms import RecomputeNorms, _nodes, _sources

ACTIVATIONS = [
    (ReSiLU2(), silu, RESILU2),
    (ReGELU2(), gelu, REGELU2),
    (ReGELU2("tanh"), lambda x: gelu(x, approximate="tanh"), REGELU2),
]


@pytest.mark.parametrize("ours, exact, h", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 33), (0, 4)])
def test_activations(
    ours: torch.nn.Module, exact: Callable[[Tensor], Tensor], h: ReluCombination, shape: tuple[int, ...]
) -> None:
    x = (8 * torch.rand(shape, dtype=torch.float64) - 4).requires_grad_()
    dy = torch.randn_like(x)
    y = ours(x)
    assert torch.equal(y, exact(x))
    y.backward(dy)
    slope = sum(a * (x.detach() > c) for a, c in zip(h.a, h.c, strict=True))
    assert x.grad is not None and torch.allclose(x.grad, dy * slope, atol=1e-12)


def test_two_bits_are_kept() -> None:
    x = torch.randn(1000, 64, requires_grad=True)
    with SavedTensors() as saved:
        ReSiLU2()(x)
    assert saved.bytes == 1000 * 64 / 4


def test_packing() -> None:
    for shape in ((1,), (4,), (3, 5), (0,)):
        codes = torch.randint(0, 4, shape, dtype=torch.uint8)
        packed = pack_2bit(codes)
        assert packed.numel() == -(-codes.numel() // 4)
        assert torch.equal(unpack_2bit(packed, codes.shape), codes.long())


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


def layer(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)


@pytest.mark.parametrize("ours, exact", [(ms_rms_norm, rms), (ms_layer_norm, layer)])
def test_norms(ours: Callable[..., Tensor], exact: Callable[[Tensor], Tensor]) -> None:
    a = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    dz = torch.randn_like(a)
    z, expected = ours(a, 1e-5), exact(b)
    assert torch.allclose(z, expected, atol=1e-12)
    z.backward(dz)
    expected.backward(dz)
    assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad, atol=1e-12)
    w, bias = torch.rand(24, dtype=torch.float64, requires_grad=True), torch.rand(24, dtype=torch.float64)
    factors = (w,) if ours is ms_rms_norm else (w, bias.requires_grad_())
    torch.autograd.gradcheck(lambda x, *f: ours(x, 1e-5, *f), (a, *factors))


@pytest.mark.parametrize("norm", [ms_rms_norm, ms_layer_norm])
def test_a_norm_keeps_its_output_alone(norm: Callable[..., Tensor]) -> None:
    x = torch.randn(10, 64, requires_grad=True)
    with SavedTensors() as saved:
        z = norm(x, 1e-5)
        z @ torch.randn(64, 8, requires_grad=True)
    assert saved.bytes == (10 * 64 + 10 + 64 * 8) * 4  # z once, and the other factor


def test_z_goes_with_y() -> None:
    """Unless something keeps y."""
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8)
    with RecomputeNorms():
        y = ms_rms_norm(x, 1e-5, weight)
        assert len(_sources) == len(_nodes) == 1
        del y
        assert not _sources and not _nodes
        loss = ms_rms_norm(x, 1e-5, weight).exp().square().sum()  # keeps what exp makes
        assert not _sources and not _nodes
    loss.backward()
    expected = x.detach().clone().requires_grad_()
    (rms(expected) * weight).exp().square().sum().backward()
    assert x.grad is not None and expected.grad is not None
    assert torch.allclose(x.grad, expected.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("autocast", [False, True])
def test_linears_keep_z_for_y(autocast: bool) -> None:
    """Three linears and one norm: z once, in the type that linears compute in, and r."""
    x = torch.randn(2, 10, 64, requires_grad=True)
    weight, linears = torch.rand(64) + 0.5, [torch.randn(16, 64) for _ in range(3)]
    grads: list[Tensor] = []
    for again in (False, True):
        x.grad = None
        for linear in linears:
            linear.requires_grad_()
        norms = RecomputeNorms() if again else nullcontext()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), SavedTensors() as saved, norms:
            y = ms_rms_norm(x, 1e-5, weight) if again else rms(x) * weight
            outs = [torch.nn.functional.linear(y, linear) for linear in linears]
        loss: Any = sum(out.float().square().sum() for out in outs)
        loss.backward()
        assert x.grad is not None
        grads.append(torch.cat([x.grad.flatten(), *(linear.grad.flatten() for linear in linears)]))
        for linear in linears:
            linear.grad = None
    size = 2 if autocast else 4
    assert saved.bytes == 20 * 64 * size + 20 * 4 + 64 * 4 + 3 * 16 * 64 * size
    assert float(torch.cosine_similarity(grads[0], grads[1], dim=0)) > (0.9999 if autocast else 1 - 1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_norms_compute_in_float32(dtype: torch.dtype) -> None:
    x = (100 * torch.randn(4, 256)).to(dtype)
    exact = rms(x.float())
    assert torch.equal(ms_rms_norm(x, 1e-5), exact.to(dtype))
