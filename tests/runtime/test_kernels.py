"""Every op three ways: the C++ kernel, the PyTorch reference in float32, and the reference in float64."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mobile_ft.model import ops
from mobile_ft.model.formats import FORMATS
from mobile_ft.runtime import RuntimeFailure
from mobile_ft.runtime._core import kernels
from tests.mobile_ft.model.test_formats import random_weight
from tests.runtime.conftest import relative_error

ROWS, COLS, RANK, SCALE = 250, 384, 3, 2.0  # ROWS leaves the last panel unfilled, COLS is more than one run of k
HEADS, KV_HEADS, DIM, PAST, WINDOW = 6, 2, 24, 100, 70

Arguments = list[Any]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape)


def weight(fmt: str) -> Arguments:
    """The three arguments that are one weight."""
    return [torch.from_numpy(random_weight(fmt, ROWS, COLS)[0].data), fmt, ROWS]


def lora() -> Arguments:
    return [random(RANK, COLS), random(ROWS, RANK), SCALE]


def cross_entropy(tokens: int, fmt: str) -> Arguments:
    """Logits of a few units: the softmax of larger ones turns on their rounding."""
    packed = weight(fmt)
    scale = ops.packed_linear_backward(torch.eye(ROWS), *packed).std() * COLS**0.5 / 3
    return [random(tokens, COLS) / scale, *packed, targets(tokens), 0.0]


def targets(tokens: int) -> Tensor:
    result = torch.arange(tokens) * 7 % ROWS
    result[1::5] = -100
    return result


def attention(tokens: int) -> Arguments:
    """Two rows packed into one sequence, at least two tokens: a single one has a gradient of zero."""
    tokens = max(tokens, 2)
    first = tokens // 3
    positions = torch.cat([torch.arange(first), torch.arange(tokens - first)])
    q, k, v = random(tokens, HEADS * DIM), random(tokens, KV_HEADS * DIM), random(tokens, KV_HEADS * DIM)
    return [q, k, v, positions]


# window, scale, softcap and sinks
PLAIN: Arguments = [0, DIM**-0.5, 0.0, None]
ATTENTION: dict[str, Arguments] = {
    "": PLAIN,
    ", window": [WINDOW, DIM**-0.5, 0.0, None],
    ", softcap": [0, 0.7, 1.5, None],
    ", sinks": [WINDOW, DIM**-0.5, 0.0, torch.linspace(-2, 3, HEADS)],
}


def attention_backward(tokens: int, settings: Arguments = PLAIN) -> Arguments:
    q, k, v, positions = attention(tokens)
    o, lse = ops.attention(q.double(), k.double(), v.double(), positions, HEADS, KV_HEADS, *settings)
    return [random(*q.shape), q, k, v, o.float(), lse.float(), positions, HEADS, KV_HEADS, *settings[:-1]]


def attention_decode(tokens: int) -> Arguments:
    q, k, v, _ = attention(tokens)
    caches = [random(PAST + 9, KV_HEADS * DIM) for _ in range(2)]
    return [q, k, v, *caches, torch.arange(PAST, PAST + len(q))]


def run_attention_decode(*arguments: Any) -> np.ndarray:
    q, k, v, k_cache, v_cache, positions, *rest = arguments
    return kernels.attention_decode(q, k, v, k_cache, v_cache, int(positions[0]), *rest)


def followed_by(make: Callable[[int], Arguments], rest: Arguments) -> Callable[[int], Arguments]:
    return lambda tokens: [*make(tokens), *rest]


def attention_cases() -> dict[str, tuple[Callable[..., Any], Any, Callable[[int], Arguments]]]:
    cases: dict[str, tuple[Callable[..., Any], Any, Callable[[int], Arguments]]] = {}
    for name, settings in ATTENTION.items():
        rest, backward = [HEADS, KV_HEADS, *settings], partial(attention_backward, settings=settings)
        cases |= {
            f"attention{name}": (kernels.attention_forward, ops.attention, followed_by(attention, rest)),
            f"attention backward{name}": (kernels.attention_backward, ops.attention_backward, backward),
            f"attention_decode{name}": (
                run_attention_decode,
                ops.attention_decode,
                followed_by(attention_decode, rest),
            ),
        }
    return cases


def delta_tokens(tokens: int) -> int:
    return max(2, min(tokens, 130))  # the reference goes token by token; these are several chunks


def delta_net(tokens: int) -> Arguments:
    """Two rows, two heads of keys and four of values."""
    tokens = delta_tokens(tokens)
    first = tokens // 3
    positions = torch.cat([torch.arange(first), torch.arange(tokens - first)])
    channels = 2 * 2 * 16 + 4 * 24
    gates = [random(tokens, 4), random(tokens, 4)]
    frozen = [random(4, channels) / 2, random(4) - 1, random(4)]
    return [random(tokens, channels), *gates, *frozen, positions, 2, 16, 1.0]


def delta_net_decode(tokens: int) -> Arguments:
    """Behind 100 tokens."""
    *tensors, positions, key_heads, key_dim, beta_scale = delta_net(tokens)
    state = random(3 * tensors[0].shape[1] + 4 * 16 * 24)
    return [*tensors, state, torch.arange(len(positions)) + 100, key_heads, key_dim, beta_scale]


def rope(tokens: int, pairs: int = DIM // 2) -> Arguments:
    # Powers of two: the angles, float32 by definition, are then exact.
    return [random(tokens, HEADS * DIM), torch.arange(tokens) + 100, 0.5 ** torch.arange(pairs), HEADS]


def run_decode(tokens: np.ndarray, table: Any, scale: float) -> np.ndarray:
    return kernels.decode(table)[tokens]


def run_loss(x: np.ndarray, packed: Any, wanted: np.ndarray, softcap: float) -> np.ndarray:
    return kernels.linear_cross_entropy(x, packed, wanted, softcap, gradient=False)[0]


# kernel, op, and the op's arguments for a number of tokens (and a format).
WEIGHT_CASES: dict[str, tuple[Callable[..., Any], Any, Callable[[int, str], Arguments]]] = {
    "linear": (
        kernels.linear_forward,
        ops.packed_linear,
        lambda t, fmt: [random(t, COLS), *weight(fmt), None, None, 0.0],
    ),
    "linear with LoRA": (
        kernels.linear_forward,
        ops.packed_linear,
        lambda t, fmt: [random(t, COLS), *weight(fmt), *lora()],
    ),
    "linear backward": (
        kernels.linear_backward,
        ops.packed_linear_backward,
        lambda t, fmt: [random(t, ROWS), *weight(fmt)],
    ),
    "linear backward with LoRA": (
        kernels.linear_lora_backward,
        ops.packed_linear_lora_backward,
        lambda t, fmt: [random(t, ROWS), random(t, COLS), *weight(fmt), *lora()],
    ),
    "linear_cross_entropy": (
        kernels.linear_cross_entropy,
        ops.linear_cross_entropy,
        cross_entropy,
    ),
    "linear_cross_entropy, loss": (
        run_loss,
        ops.linear_cross_entropy_loss,
        cross_entropy,
    ),
    "linear_cross_entropy, softcap": (
        kernels.linear_cross_entropy,
        ops.linear_cross_entropy,
        lambda t, fmt: [*cross_entropy(t, fmt)[:-1], 2.5],
    ),
    "embedding": (
        kernels.embedding,
        ops.packed_embedding,
        lambda t, fmt: [torch.arange(t) * 7 % ROWS, *weight(fmt), SCALE],
    ),
    "decode": (run_decode, ops.packed_embedding, lambda t, fmt: [torch.arange(ROWS), *weight(fmt), 1.0]),
}
CASES: dict[str, tuple[Callable[..., Any], Any, Callable[[int], Arguments]]] = {
    "add": (kernels.add, ops.add, lambda t: [random(t, COLS), random(t, COLS)]),
    "affine": (kernels.affine, ops.affine, lambda t: [random(t, COLS), random(COLS)]),
    "add_bias": (kernels.add_bias, ops.add_bias, lambda t: [random(t, COLS), random(COLS)]),
    **attention_cases(),
    "rms_norm": (kernels.rms_norm, ops.rms_norm, lambda t: [random(t, COLS), random(COLS), 1e-5]),
    "rms_norm backward": (
        kernels.rms_norm_backward,
        ops.rms_norm_backward,
        lambda t: [random(t, COLS), random(t, COLS), random(COLS), random(t, 1).abs()],
    ),
    "rms_norm of heads": (kernels.rms_norm, ops.rms_norm, lambda t: [random(t, COLS), random(DIM), 1e-5]),
    "rms_norm of heads, backward": (
        kernels.rms_norm_backward,
        ops.rms_norm_backward,
        lambda t: [random(t, COLS), random(t, COLS), random(DIM), random(t, COLS // DIM).abs()],
    ),
    "rope": (kernels.rope, ops.rope, lambda t: [*rope(t), False, False, 1.0]),
    "rope, inverse": (kernels.rope, ops.rope, lambda t: [*rope(t), True, False, 1.0]),
    "rope, partial": (kernels.rope, ops.rope, lambda t: [*rope(t, 5), False, False, 1.2]),
    "rope, interleaved": (kernels.rope, ops.rope, lambda t: [*rope(t, 5), False, True, 1.2]),
    "delta_net": (kernels.delta_net, ops.delta_net, delta_net),
    "delta_net backward": (
        kernels.delta_net_backward,
        ops.delta_net_backward,
        lambda t: [random(delta_tokens(t), 4 * 24), *delta_net(t)],
    ),
    "delta_net_decode": (kernels.delta_net_decode, ops.delta_net_decode, delta_net_decode),
    "split": (kernels.split, ops.split, lambda t: [random(t, COLS), 3, 50]),
    "join": (kernels.join, ops.join, lambda t: [random(t, 30), random(t, 90), 3]),
    "sigmoid_gate": (kernels.sigmoid_gate, ops.sigmoid_gate, lambda t: [random(t, COLS), 3 * random(t, 6)]),
    "sigmoid_gate backward": (
        kernels.sigmoid_gate_backward,
        ops.sigmoid_gate_backward,
        lambda t: [random(t, COLS), random(t, COLS), 3 * random(t, 6)],
    ),
    "relu2": (kernels.relu2, ops.relu2, lambda t: [random(t, COLS)]),
    "relu2 backward": (kernels.relu2_backward, ops.relu2_backward, lambda t: [random(t, COLS), random(t, COLS)]),
    "softcap": (kernels.softcap, ops.softcap, lambda t: [random(t, COLS) * 30, 30.0]),
    "swiglu": (kernels.swiglu, ops.swiglu, lambda t: [4 * random(t, ROWS), random(t, ROWS)]),
    "swiglu backward": (
        kernels.swiglu_backward,
        ops.swiglu_backward,
        lambda t: [random(t, ROWS), 4 * random(t, ROWS), random(t, ROWS)],
    ),
}


def for_kernel(arguments: Arguments) -> Arguments:
    """The same as numpy arrays, a weight's three as one."""
    result: Arguments = []
    rest = iter(arguments)
    for argument in rest:
        if isinstance(argument, Tensor) and argument.dtype == torch.uint8:
            result.append(kernels.Weight(argument.numpy(), next(rest), next(rest)))
        else:
            result.append(argument.numpy() if isinstance(argument, Tensor) else argument)
    return result


def for_float64(arguments: Arguments) -> Arguments:
    return [x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in arguments]


def as_tuple(outputs: Any) -> tuple:
    return outputs if isinstance(outputs, tuple) else (outputs,)


# Every kind of code, and every group with codes that are numbers and with a codebook.
KERNEL_FORMATS = [name for name, fmt in FORMATS.items() if fmt.group == 32 or fmt.kind in ("q4_1", "nf4")]


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("tokens", [1, 37, 300])
@pytest.mark.parametrize(
    ("name", "fmt"), [(name, fmt) for name in WEIGHT_CASES for fmt in KERNEL_FORMATS] + [(name, None) for name in CASES]
)
def test_kernel_reference_and_float64(name: str, fmt: str | None, tokens: int, threads: bool) -> None:
    torch.manual_seed(tokens)
    if fmt is None:
        kernel, op, make = CASES[name]
        arguments = make(tokens)
    else:
        kernel, op, make_weighted = WEIGHT_CASES[name]
        arguments = make_weighted(tokens, fmt)
    kernels.use_threads(threads)
    try:
        actual = as_tuple(kernel(*for_kernel(arguments)))
    finally:
        kernels.use_threads(True)
    reference, exact = as_tuple(op(*arguments)), as_tuple(op(*for_float64(arguments)))
    assert len(actual) == len(reference) == len(exact)
    for ours, theirs, expected in zip(actual, reference, exact, strict=True):
        assert relative_error(theirs.numpy(), expected.numpy()) < 1e-5
        assert relative_error(np.reshape(ours, expected.shape), expected.numpy()) < 1e-5


def test_the_same_formats_in_both_languages() -> None:
    assert kernels.formats() == {name: fmt.block_bytes for name, fmt in FORMATS.items()}


def test_gradients_are_the_same_on_any_number_of_threads() -> None:
    lora_kernel, _, make = WEIGHT_CASES["linear backward with LoRA"]
    for kernel, arguments in (
        (kernels.attention_backward, attention_backward(400)),
        (lora_kernel, make(300, "q4_1")),
    ):
        results = []
        for threads in (False, True, True, True):
            kernels.use_threads(threads)
            results.append(np.concatenate([x.ravel() for x in kernel(*for_kernel(arguments))]))
        assert all((result == results[0]).all() for result in results)


def test_a_wrong_argument_is_refused() -> None:
    data, fmt, rows = weight("q4_0")
    packed = kernels.Weight(data.numpy(), fmt, rows)
    x = random(4, COLS).numpy()
    with pytest.raises(RuntimeFailure, match="not known"):
        kernels.Weight(data.numpy(), "q5_0", rows)
    for wrong in (rows + 16, rows - 16, -1):
        with pytest.raises(RuntimeFailure, match="weight"):
            kernels.Weight(data.numpy(), fmt, wrong)
    with pytest.raises(RuntimeFailure, match="x: dimension 1 is 383; must be 384"):
        kernels.linear_forward(np.ascontiguousarray(x[:, 1:]), packed)
    for not_fit in (x.astype(np.float64), x[:, ::-1], x[0], x[None]):
        with pytest.raises(TypeError):
            kernels.linear_forward(not_fit, packed)
    with pytest.raises(RuntimeFailure, match="weight: the row size 384 is not a multiple of 7"):
        kernels.rms_norm(x, np.ones(7, np.float32), 1e-5)
    with pytest.raises(RuntimeFailure, match="lora_b"):
        kernels.linear_forward(x, packed, np.zeros((3, COLS), np.float32), np.zeros((ROWS, 2), np.float32), 1.0)
    with pytest.raises(RuntimeFailure, match="set both lora_a and lora_b"):
        kernels.linear_forward(x, packed, np.zeros((3, COLS), np.float32))
    with pytest.raises(RuntimeFailure, match="target 250"):
        kernels.linear_cross_entropy(x, packed, np.array([0, 1, 2, ROWS]))
    with pytest.raises(RuntimeFailure, match="token"):
        kernels.embedding(np.array([-1]), packed, 1.0)
    q, k, v, positions = for_kernel(attention(6))
    heads = (HEADS, KV_HEADS)
    with pytest.raises(RuntimeFailure, match="k: dimension 0"):
        kernels.attention_forward(q, k[:5], v, positions, *heads)
    with pytest.raises(RuntimeFailure, match=r"positions\[0\]"):
        kernels.attention_forward(q, k, v, positions + 1, *heads)
    with pytest.raises(RuntimeFailure, match="heads 6: must be a multiple"):
        kernels.attention_forward(q, k, v, positions, 6, 4)
    with pytest.raises(RuntimeFailure, match="past 7"):
        kernels.attention_decode(q, k, v, k, v, 7, *heads)
