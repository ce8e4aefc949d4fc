"""Translates the runtime's ops to ONNX's standard ops, by the formulas of `mobile_ft.model.ops`.

Each function takes the graph, the node of the traced graph and its arguments (names of values, matrices, numbers), and
returns the names of the op's outputs. Activations are float32 [tokens, width].
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from mobile_ft.converters.onnx_graph import OnnxGraph
from mobile_ft.converters.onnx_matrix import Matrix, dense, rows_of
from mobile_ft.errors import UserError

_LOWEST = float(np.finfo(np.float32).min)
_GELU = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715

Emit = Callable[..., list[str]]


def _number(g: OnnxGraph, value: float) -> str:
    return g.constant(value, np.float32)


def _mean(g: OnnxGraph, x: str) -> str:
    """Mean over the last axis, which is kept with size 1."""
    return g.op("ReduceMean", x, g.constant([-1]))


def _size(node: Any, argument: int, axis: int) -> int:
    """Returns a size that is known from the trace."""
    return int(node.args[argument].meta["val"].shape[axis])


def _add(g: OnnxGraph, node: Any, x: str, y: str) -> list[str]:
    return [g.op("Add", x, y)]


def _affine(g: OnnxGraph, node: Any, z: str, weight: str) -> list[str]:
    return [g.op("Mul", z, weight)]


def _normalised(g: OnnxGraph, x: str, eps: float) -> tuple[str, str]:
    """Returns x divided by its root mean square over the last axis, and the reciprocal of the latter."""
    mean = _mean(g, g.op("Mul", x, x))
    rstd = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, _number(g, eps))))
    return g.op("Mul", x, rstd), rstd


def _norm_gradient(g: OnnxGraph, dz: str, z: str, rstd: str) -> str:
    """dx = rstd (dz - z mean(dz z))"""
    return g.op("Mul", rstd, g.op("Sub", dz, g.op("Mul", z, _mean(g, g.op("Mul", dz, z)))))


def _rms_norm(g: OnnxGraph, node: Any, x: str, weight: str, eps: float) -> list[str]:
    width, size = _size(node, 0, 1), _size(node, 1, 0)
    z, rstd = _normalised(g, g.op("Reshape", x, g.constant([-1, width // size, size])), eps)
    y = g.op("Reshape", g.op("Mul", z, weight), g.constant([-1, width]))
    return [y, g.op("Squeeze", rstd, g.constant([2]))]


def _rms_norm_backward(g: OnnxGraph, node: Any, dy: str, x: str, weight: str, rstd: str) -> list[str]:
    width, size = _size(node, 1, 1), _size(node, 2, 0)
    shape, column = g.constant([-1, width // size, size]), g.op("Unsqueeze", rstd, g.constant([2]))
    z = g.op("Mul", g.op("Reshape", x, shape), column)
    dx = _norm_gradient(g, g.op("Mul", g.op("Reshape", dy, shape), weight), z, column)
    return [g.op("Reshape", dx, g.constant([-1, width]))]


def _ms_rms_norm(g: OnnxGraph, node: Any, x: str, eps: float) -> list[str]:
    z, rstd = _normalised(g, x, eps)
    return [z, g.op("Squeeze", rstd, g.constant([1]))]


def _ms_rms_norm_backward(g: OnnxGraph, node: Any, dz: str, z: str, rstd: str) -> list[str]:
    return [_norm_gradient(g, dz, z, g.op("Unsqueeze", rstd, g.constant([1])))]


def _rope(
    g: OnnxGraph,
    node: Any,
    x: str,
    positions: str,
    inv_freq: str,
    heads: int,
    inverse: bool,
    interleaved: bool,
    factor: float,
) -> list[str]:
    width, pairs = _size(node, 0, 1), node.args[2].meta["val"].shape[0]
    column = g.op("Unsqueeze", g.op("Cast", positions, to=TensorProto.FLOAT), g.constant([1, 2]))
    angles = g.op("Mul", column, inv_freq)  # [tokens, 1, pairs]
    cos, sin = (g.op("Mul", g.op(name, angles), _number(g, factor)) for name in ("Cos", "Sin"))
    if inverse:
        sin = g.op("Neg", sin)
    rotated, rest = g.op("Reshape", x, g.constant([-1, heads, width // heads])), None
    if 2 * pairs < width // heads:
        rotated, rest = g.ops("Split", 2, rotated, g.constant([2 * pairs, width // heads - 2 * pairs]), axis=-1)
    shape = [0, heads, pairs, 2] if interleaved else [0, heads, 2, pairs]
    axis = 3 if interleaved else 2
    both = g.ops("Split", 2, g.op("Reshape", rotated, g.constant(shape)), axis=axis, num_outputs=2)
    low, high = (g.op("Squeeze", half, g.constant([axis])) for half in both)
    turned = [
        g.op("Sub", g.op("Mul", low, cos), g.op("Mul", high, sin)),
        g.op("Add", g.op("Mul", high, cos), g.op("Mul", low, sin)),
    ]
    pair = g.op("Concat", *(g.op("Unsqueeze", half, g.constant([axis])) for half in turned), axis=axis)
    parts = [g.op("Reshape", pair, g.constant([0, heads, 2 * pairs])), *([] if rest is None else [rest])]
    return [g.op("Reshape", g.op("Concat", *parts, axis=-1), g.constant([-1, width]))]


def _swiglu(g: OnnxGraph, node: Any, gate: str, up: str) -> list[str]:
    return [g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)]


def _swiglu_backward(g: OnnxGraph, node: Any, dy: str, gate: str, up: str) -> list[str]:
    sigmoid = g.op("Sigmoid", gate)
    return _gate_gradient(g, dy, up, sigmoid, g.op("Mul", gate, sigmoid), _number(g, 1))


def _gelu_sigmoid(g: OnnxGraph, gate: str, square: str) -> str:
    """Returns gelu(gate) / gate."""
    inner = g.op("Mul", gate, g.op("Add", _number(g, 1), g.op("Mul", _number(g, _CUBIC), square)))
    return g.op("Sigmoid", g.op("Mul", _number(g, _GELU), inner))


def _geglu(g: OnnxGraph, node: Any, gate: str, up: str) -> list[str]:
    sigmoid = _gelu_sigmoid(g, gate, g.op("Mul", gate, gate))
    return [g.op("Mul", g.op("Mul", gate, sigmoid), up)]


def _geglu_backward(g: OnnxGraph, node: Any, dy: str, gate: str, up: str) -> list[str]:
    square = g.op("Mul", gate, gate)
    sigmoid = _gelu_sigmoid(g, gate, square)
    slope = g.op("Add", _number(g, _GELU), g.op("Mul", _number(g, 3 * _CUBIC * _GELU), square))
    return _gate_gradient(g, dy, up, sigmoid, g.op("Mul", gate, sigmoid), slope)


def _gate_gradient(g: OnnxGraph, dy: str, up: str, sigmoid: str, active: str, slope: str) -> list[str]:
    """Gradient of y = gate sigmoid(s(gate)) up to the gate, with s' = slope."""
    rest = g.op("Mul", g.op("Mul", active, g.op("Sub", _number(g, 1), sigmoid)), slope)
    dgate = g.op("Mul", g.op("Mul", dy, up), g.op("Add", sigmoid, rest))
    return [dgate, g.op("Mul", dy, active)]


def _packed_linear(
    g: OnnxGraph, node: Any, x: str, w: Matrix, fmt: str, rows: int, a: str | None, b: str | None, scale: float
) -> list[str]:
    y = g.op("Gemm", x, dense(g, w), transB=1)
    if a is None or b is None:
        return [y]
    low = g.op("Gemm", x, a, transB=1)
    return [g.op("Add", y, g.op("Gemm", low, b, transB=1, alpha=scale))]


def _packed_linear_backward(g: OnnxGraph, node: Any, dy: str, w: Matrix, fmt: str, rows: int) -> list[str]:
    return [g.op("MatMul", dy, dense(g, w))]


def _packed_linear_lora_backward(
    g: OnnxGraph, node: Any, dy: str, x: str, w: Matrix, fmt: str, rows: int, a: str, b: str, scale: float
) -> list[str]:
    low = g.op("Gemm", dy, b, alpha=scale)  # [tokens, rank]
    dx = g.op("Add", g.op("MatMul", dy, dense(g, w)), g.op("MatMul", low, a))
    da = g.op("Gemm", low, x, transA=1)
    return [dx, da, g.op("Gemm", dy, g.op("Gemm", x, a, transB=1), transA=1, alpha=scale)]


class _Attention:
    """Queries [kv_heads, group, tokens, dim], keys and values [kv_heads, 1, tokens, dim], and the attention mask."""

    def __init__(self, g: OnnxGraph, q: str, k: str, positions: str, width: int, settings: tuple[Any, ...]) -> None:
        heads, kv_heads, window, scale, softcap, *sinks = settings
        if softcap or any(sinks):
            raise UserError(
                "to onnx-training: limited scores and attention sinks are not supported; use another target"
            )
        self.g, self.width, self.kv_heads, self.group = g, width, kv_heads, heads // kv_heads
        self.dim = width // heads
        self.scale = _number(g, scale)
        self.queries, self.keys = self.of_queries(q), self.of_keys(k)
        places = g.op("Range", g.constant(0), g.op("Squeeze", g.op("Shape", positions)), g.constant(1))
        ago = g.op("Sub", g.op("Unsqueeze", places, g.constant([1])), places)
        own = g.op("LessOrEqual", ago, g.op("Unsqueeze", positions, g.constant([1])))
        seen = g.op("And", g.op("GreaterOrEqual", ago, g.constant(0)), own)
        if window:
            seen = g.op("And", seen, g.op("Less", ago, g.constant(window)))
        scores = g.op("Mul", g.op("MatMul", self.queries, self.turned(self.keys)), self.scale)
        self.scores = g.op("Where", seen, scores, _number(g, _LOWEST))
        self.weights = g.op("Softmax", self.scores, axis=-1)

    def of_queries(self, x: str) -> str:
        split = self.g.op("Reshape", x, self.g.constant([-1, self.kv_heads, self.group, self.dim]))
        return self.g.op("Transpose", split, perm=[1, 2, 0, 3])

    def of_keys(self, x: str) -> str:
        split = self.g.op("Reshape", x, self.g.constant([-1, self.kv_heads, 1, self.dim]))
        return self.g.op("Transpose", split, perm=[1, 2, 0, 3])

    def turned(self, x: str) -> str:
        return self.g.op("Transpose", x, perm=[0, 1, 3, 2])

    def flat_queries(self, x: str) -> str:
        back = self.g.op("Transpose", x, perm=[2, 0, 1, 3])
        return self.g.op("Reshape", back, self.g.constant([-1, self.width]))

    def flat_keys(self, x: str) -> str:
        """Sums over a group's queries."""
        summed = self.g.op("ReduceSum", x, self.g.constant([1]), keepdims=0)  # [kv_heads, tokens, dim]
        back = self.g.op("Transpose", summed, perm=[1, 0, 2])
        return self.g.op("Reshape", back, self.g.constant([-1, self.kv_heads * self.dim]))


def _attention(g: OnnxGraph, node: Any, q: str, k: str, v: str, positions: str, *settings: Any) -> list[str]:
    heads = settings[0]
    a = _Attention(g, q, k, positions, _size(node, 0, 1), settings)
    o = a.flat_queries(g.op("MatMul", a.weights, a.of_keys(v)))
    lse = g.op("ReduceLogSumExp", a.scores, g.constant([3]), keepdims=0)
    return [o, g.op("Reshape", lse, g.constant([heads, -1]))]


def _attention_backward(
    g: OnnxGraph, node: Any, do: str, q: str, k: str, v: str, o: str, lse: str, positions: str, *settings: Any
) -> list[str]:
    a = _Attention(g, q, k, positions, _size(node, 1, 1), settings)
    grad, out = a.of_queries(do), a.of_queries(o)
    dp = g.op("MatMul", grad, a.turned(a.of_keys(v)))
    along = g.op("ReduceSum", g.op("Mul", grad, out), g.constant([-1]))
    ds = g.op("Mul", g.op("Mul", a.weights, g.op("Sub", dp, along)), a.scale)
    dq = a.flat_queries(g.op("MatMul", ds, a.keys))
    dk = a.flat_keys(g.op("MatMul", a.turned(ds), a.queries))
    return [dq, dk, a.flat_keys(g.op("MatMul", a.turned(a.weights), grad))]


class _ShortConv:
    """The parts of bcx, and the taps one by one, that of the current token first."""

    def __init__(self, g: OnnxGraph, bcx: str, taps: str, positions: str, count: int, width: int) -> None:
        self.g, self.count, self.width = g, count, width
        self.b, self.c, self.x = g.ops("Split", 3, bcx, axis=-1, num_outputs=3)
        self.taps = [g.op("Gather", taps, g.constant(count - 1 - j)) for j in range(count)]
        column = g.op("Unsqueeze", positions, g.constant([1]))
        self.within = [
            g.op("Cast", g.op("GreaterOrEqual", column, g.constant(j)), to=TensorProto.FLOAT) for j in range(count)
        ]

    def later(self, x: str, j: int) -> str:
        """x[t - j], zeros at the beginning."""
        if j == 0:
            return x
        g = self.g
        padded = g.op("Concat", g.constant(np.zeros((j, self.width)), np.float32), x, axis=0)
        return g.op("Slice", padded, g.constant([0]), g.constant([-j]), g.constant([0]))

    def earlier(self, x: str, j: int) -> str:
        """x[t + j], zeros at the end."""
        if j == 0:
            return x
        g = self.g
        padded = g.op("Concat", x, g.constant(np.zeros((j, self.width)), np.float32), axis=0)
        return g.op("Slice", padded, g.constant([j]), g.constant([2**31]), g.constant([0]))

    def sum(self, terms: list[str]) -> str:
        return self.g.op("Sum", *terms)

    def convolved(self) -> str:
        g, u = self.g, self.g.op("Mul", self.b, self.x)
        terms = [g.op("Mul", g.op("Mul", self.later(u, j), self.taps[j]), self.within[j]) for j in range(self.count)]
        return self.sum(terms)


def _short_conv(g: OnnxGraph, node: Any, bcx: str, taps: str, positions: str) -> list[str]:
    conv = _ShortConv(g, bcx, taps, positions, _size(node, 1, 0), _size(node, 1, 1))
    return [g.op("Mul", conv.c, conv.convolved())]


def _short_conv_backward(g: OnnxGraph, node: Any, dy: str, bcx: str, taps: str, positions: str) -> list[str]:
    conv = _ShortConv(g, bcx, taps, positions, _size(node, 2, 0), _size(node, 2, 1))
    dv = g.op("Mul", dy, conv.c)
    terms = [conv.earlier(g.op("Mul", g.op("Mul", dv, conv.taps[j]), conv.within[j]), j) for j in range(conv.count)]
    du = conv.sum(terms)
    parts = [g.op("Mul", du, conv.x), g.op("Mul", dy, conv.convolved()), g.op("Mul", du, conv.b)]
    return [g.op("Concat", *parts, axis=-1)]


def _packed_embedding(
    g: OnnxGraph, node: Any, tokens: str, table: Matrix, fmt: str, rows: int, scale: float
) -> list[str]:
    return [g.op("Mul", rows_of(g, tokens, table), _number(g, scale))]


def _linear_cross_entropy(
    g: OnnxGraph, node: Any, x: str, w: Matrix, fmt: str, rows: int, targets: str, softcap: float
) -> list[str]:
    if softcap:
        raise UserError("to onnx-training: softcaps are not supported; use another target")
    matrix = dense(g, w)
    logits = g.op("Gemm", x, matrix, transB=1)
    valid = g.op("Not", g.op("Equal", targets, g.constant(-100)))
    kept = g.op("Cast", g.op("Unsqueeze", valid, g.constant([1])), to=TensorProto.FLOAT)
    chosen = g.op("Where", valid, targets, g.constant(0))
    one_hot = g.op("OneHot", chosen, g.constant(rows), g.constant([0, 1], np.float32), axis=-1)
    logs = g.op("LogSoftmax", logits, axis=-1)
    picked = g.op("ReduceSum", g.op("Mul", logs, one_hot), g.constant([1]))
    losses = g.op("Squeeze", g.op("Mul", g.op("Neg", picked), kept), g.constant([1]))
    dlogits = g.op("Mul", g.op("Sub", g.op("Exp", logs), one_hot), kept)
    return [losses, g.op("MatMul", dlogits, matrix)]


OPS: dict[str, Emit] = {
    "add": _add,
    "add_bias": _add,
    "affine": _affine,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "geglu": _geglu,
    "geglu_backward": _geglu_backward,
    "linear_cross_entropy": _linear_cross_entropy,
    "ms_rms_norm": _ms_rms_norm,
    "ms_rms_norm_backward": _ms_rms_norm_backward,
    "packed_embedding": _packed_embedding,
    "packed_linear": _packed_linear,
    "packed_linear_backward": _packed_linear_backward,
    "packed_linear_lora_backward": _packed_linear_lora_backward,
    "rms_norm": _rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "rope": _rope,
    "short_conv": _short_conv,
    "short_conv_backward": _short_conv_backward,
    "swiglu": _swiglu,
    "swiglu_backward": _swiglu_backward,
}
