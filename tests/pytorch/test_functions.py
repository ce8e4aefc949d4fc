"""The functions by themselves, against their formulas."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from mobile_ft.ops.glu_2bit import REGELU2, RESILU2, ReluCombination
from mobile_ft.pytorch import ReGELU2, ReSiLU2, SavedTensors, ms_layer_norm, ms_rms_norm
from mobile_ft.pytorch.activations import pack_2bit, unpack_2bit
from mobile_ft.pytorch.affine import AgainFromZ, _sources, affine

ACTIVATIONS = [
    (ReSiLU2(), silu, RESILU2),
    (ReGELU2(), gelu, REGELU2),
    (ReGELU2("tanh"), lambda x: gelu(x, approximate="tanh"), REGELU2),
]


@pytest.mark.parametrize("ours, exact, h", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 33), (0, 4)])
def test_activations(ours: torch.nn.Module, exact: object, h: ReluCombination, shape: tuple[int, ...]) -> None:
    x = (8 * torch.rand(shape, dtype=torch.float64) - 4).requires_grad_()
    dy = torch.randn_like(x)
    y = ours(x)
    assert torch.equal(y, exact(x))  # type: ignore[operator]
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
def test_norms(ours: object, exact: object) -> None:
    a = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    dz = torch.randn_like(a)
    z, expected = ours(a, 1e-5), exact(b)  # type: ignore[operator]
    assert torch.allclose(z, expected, atol=1e-12)
    z.backward(dz)
    expected.backward(dz)
    assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad, atol=1e-12)
    torch.autograd.gradcheck(lambda x: ours(x, 1e-5), a)  # type: ignore[operator]


@pytest.mark.parametrize("norm", [ms_rms_norm, ms_layer_norm])
def test_a_norm_keeps_its_output_alone(norm: object) -> None:
    x = torch.randn(10, 64, requires_grad=True)
    with SavedTensors() as saved:
        z = norm(x, 1e-5)  # type: ignore[operator]
        z @ torch.randn(64, 8, requires_grad=True)
    assert saved.bytes == (10 * 64 + 10 + 64 * 8) * 4  # z once, and the other factor


def test_z_goes_with_y() -> None:
    """Unless something keeps y."""
    z, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8)
    with AgainFromZ():
        y = affine(z, weight, None)
        assert len(_sources) == 1
        del y
        assert not _sources
        loss = affine(z, weight, None).exp().square().sum()  # keeps what exp makes
        assert not _sources
    loss.backward()
    assert z.grad is not None
    assert torch.allclose(z.grad, 2 * weight * (2 * z.detach() * weight).exp())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_norms_compute_in_float32(dtype: torch.dtype) -> None:
    x = (100 * torch.randn(4, 256)).to(dtype)
    exact = rms(x.float())
    assert torch.equal(ms_rms_norm(x, 1e-5), exact.to(dtype))
