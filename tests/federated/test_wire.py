"""What changes look like between devices and server, and what is refused."""

import numpy as np
import pytest
from safetensors.numpy import load, save

from mobile_ft.errors import UserError
from mobile_ft.federated.wire import BLOCK, Wire, decode, encode, wire_of

SHAPES = {"a": (4, 100), "b": (7, 3), "empty": (0, 5)}


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def test_float32_is_exact(tensors: dict[str, np.ndarray]) -> None:
    for name, tensor in decode(encode(tensors, "float32"), SHAPES).items():
        assert np.array_equal(tensor, tensors[name])


def test_float16_rounds_once(tensors: dict[str, np.ndarray]) -> None:
    for name, tensor in decode(encode(tensors, "float16"), SHAPES).items():
        assert tensor.dtype == np.float32
        assert np.array_equal(tensor, tensors[name].astype(np.float16).astype(np.float32))


def test_int8_errs_by_half_a_code_of_its_block(tensors: dict[str, np.ndarray]) -> None:
    tensors["a"][0, :50] *= 1e4  # of the first block alone
    for name, tensor in decode(encode(tensors, "int8"), SHAPES).items():
        exact, rounded = tensors[name].ravel(), tensor.ravel()
        for begin in range(0, exact.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            most = np.abs(exact[block]).max() / 254 * (1 + 1e-5)
            assert np.abs(exact[block] - rounded[block]).max() <= most
    assert len(encode(tensors, "int8")) < len(encode(tensors, "float16")) < len(encode(tensors, "float32"))


def test_zeros_stay_zeros() -> None:
    assert not decode(encode({"x": np.zeros((3, 200), np.float32)}, "int8"), {"x": (3, 200)})["x"].any()


def changed(data: bytes, **tensors: np.ndarray | None) -> bytes:
    values = load(data) | tensors
    return save({name: x for name, x in values.items() if x is not None})


@pytest.mark.parametrize(
    ("wire", "change", "message"),
    [
        ("float32", {"a": None}, "tensor a is missing"),
        ("float32", {"a": np.zeros((4, 99), np.float32)}, r"tensor a has shape \(4, 99\); expected: \(4, 100\)"),
        ("float32", {"a": np.zeros((4, 100), np.int32)}, "tensor a is int32"),
        ("float32", {"a": np.zeros((4, 100), np.float64)}, "tensor a is float64"),
        ("float32", {"a": np.full((4, 100), np.nan, np.float32)}, "tensor a has values that are not finite"),
        ("float16", {"a": np.full((4, 100), np.inf, np.float16)}, "tensor a has values that are not finite"),
        ("float32", {"c": np.zeros(1, np.float32)}, "tensor c is not expected"),
        ("float32", {"a.scale": np.zeros(4, np.float32)}, "tensor a.scale is not expected"),
        ("int8", {"a.scale": None}, r"a.scale must be float32 \[4\]"),
        ("int8", {"a.scale": np.zeros(5, np.float32)}, r"a.scale must be float32 \[4\]"),
        ("int8", {"a.scale": np.zeros(4, np.float16)}, r"a.scale must be float32 \[4\]"),
        ("int8", {"a.scale": np.full(4, np.nan, np.float32)}, "not finite"),
        ("int8", {"a.scale": np.full(4, 3e38, np.float32)}, "not finite"),
        ("int8", {"x": np.zeros(99999, np.float32)}, "bytes; at most [0-9]+ are expected"),
    ],
)
def test_refused(
    tensors: dict[str, np.ndarray], wire: Wire, change: dict[str, np.ndarray | None], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        decode(changed(encode(tensors, wire), **change), SHAPES)


def test_damaged_files_are_refused_or_harmless(tensors: dict[str, np.ndarray]) -> None:
    """A changed byte is an error of its own kind, or finite numbers of the right shapes."""
    rng = np.random.default_rng(1)
    for wire in ("float32", "float16", "int8"):
        whole = encode(tensors, wire_of(wire))
        for length in (0, 7, 8, 100, len(whole) - 1):
            with pytest.raises(UserError):
                decode(whole[:length], SHAPES)
        for _ in range(1000):
            data = bytearray(whole)
            data[rng.integers(len(data) if rng.random() < 0.5 else 400)] ^= 1 << rng.integers(8)
            try:
                found = decode(bytes(data), SHAPES)
            except UserError:
                continue
            assert {name: x.shape for name, x in found.items()} == SHAPES
            assert all(np.isfinite(x).all() for x in found.values())


def test_what_cannot_be_sent() -> None:
    with pytest.raises(UserError, match="tensor x has values that are not finite"):
        encode({"x": np.array([np.nan], np.float32)}, "int8")
    with pytest.raises(UserError, match="too large for float16; set wire to float32"):
        encode({"x": np.array([1e5], np.float32)}, "float16")
    with pytest.raises(UserError, match="wire 'int4': must be one of float32, float16, int8"):
        wire_of("int4")
