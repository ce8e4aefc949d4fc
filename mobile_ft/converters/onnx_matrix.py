"""Packed matrices in ONNX: integer codes as onnxruntime's MatMulNBits has them, any other format as float16.

MatMulNBits computes x W^T of W = scale * (code - zero_point), by groups of columns: exactly q4_0, q4_1 and q8_0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.onnx_graph import OnnxGraph
from mobile_ft.formats import F32, FORMATS, PANEL_ROWS, U8, Format, unpack

_BITS = {"q4_0": 4, "q4_1": 4, "q8_0": 8}


@dataclass(frozen=True)
class Matrix:
    """The initializers of a weight [rows, cols]: codes and scales, and zero points where 2^(bits - 1) is none."""

    rows: int
    cols: int
    codes: str  # uint8 [rows, groups, bytes]; or the weight itself, float16 [rows, cols]
    scales: str | None = None  # float32 [rows, groups]
    zero_points: str | None = None
    bits: int = 16
    group: int = 0


def add_matrix(graph: OnnxGraph, model: FineTuned, name: str) -> Matrix:
    """Codes stay as they are, and the adapter aside; what becomes float16 has the adapter merged."""
    fmt = FORMATS[model.format_of(name)]
    rows, cols = model.shapes[name]
    if fmt.kind not in _BITS:
        return Matrix(rows, cols, graph.weight(name, model.merged(name, np.float16)))
    parts = {end: graph.weight(name + end, array) for end, array in matrix_arrays(model, name).items()}
    return _matrix(parts, fmt, rows, cols)


def matrix_arrays(model: FineTuned, name: str) -> dict[str, npt.NDArray]:
    """{end of the name: array} of a weight without the adapter: .codes, .scales, .zero_points; or float16."""
    fmt, rows = FORMATS[model.format_of(name)], model.shapes[name][0]
    packed = model.packed(name)
    if fmt.kind not in _BITS:
        return {"": unpack(packed, model.format_of(name), rows).astype(np.float16)}
    codes, scales, zero_points = affine(packed, fmt, rows)
    arrays: dict[str, npt.NDArray] = {".codes": codes, ".scales": scales}
    if _BITS[fmt.kind] == 4:
        arrays[".codes"] = codes[..., 0::2] | codes[..., 1::2] << 4
    return arrays if zero_points is None else arrays | {".zero_points": zero_points}


def matrix_input(graph: OnnxGraph, name: str, fmt: str, rows: int, cols: int) -> Matrix:
    """A weight that the caller gives, as `matrix_arrays` has it."""
    kind = FORMATS[fmt]
    if kind.kind not in _BITS:
        return Matrix(rows, cols, graph.input(name, np.float16, [rows, cols]))
    bits, groups = _BITS[kind.kind], cols // kind.group
    parts = {".codes": graph.input(f"{name}.codes", np.uint8, [rows, groups, kind.group * bits // 8])}
    for end in (".scales", *((".zero_points",) if kind.kind == "q4_1" else ())):
        parts[end] = graph.input(name + end, np.float32, [rows, groups])
    return _matrix(parts, kind, rows, cols)


def _matrix(parts: dict[str, str], fmt: Format, rows: int, cols: int) -> Matrix:
    return Matrix(rows, cols, parts[".codes"], parts[".scales"], parts.get(".zero_points"), _BITS[fmt.kind], fmt.group)


def affine(packed: U8, fmt: Format, rows: int) -> tuple[U8, F32, F32 | None]:
    """Codes [rows, groups, group], scales and zero points [rows, groups]; None where those are 2^(bits - 1)."""

    def header(i: int) -> F32:
        part = np.ascontiguousarray(packed[..., 2 * i * PANEL_ROWS : 2 * (i + 1) * PANEL_ROWS]).view(np.float16)
        return part.transpose(0, 2, 1).reshape(-1, packed.shape[1])[:rows].astype(np.float32)

    body = packed[..., fmt.header_bytes :].reshape(*packed.shape[:2], fmt.group, -1)
    columns = body ^ np.uint8(128) if fmt.kind == "q8_0" else np.concatenate([body & 15, body >> 4], axis=-1)
    codes: U8 = columns.transpose(0, 3, 1, 2).reshape(-1, packed.shape[1], fmt.group)[:rows]
    scales = header(0)
    if fmt.kind != "q4_1":
        return codes, scales, None
    minima = header(1)
    flat = scales == 0  # all of the group is its minimum, which is then once its scale
    codes[flat] = 1
    scales = np.where(flat, minima, scales)
    return codes, scales, np.where(flat, 0, -minima / np.where(flat, 1, scales)).astype(np.float32)


def product(graph: OnnxGraph, x: str, matrix: Matrix) -> str:
    """x [tokens, cols] W^T, float32 [tokens, rows]."""
    if matrix.scales is None:
        return graph.op("Gemm", x, _float32(graph, matrix.codes), transB=1)
    inputs = [x, matrix.codes, matrix.scales] + ([matrix.zero_points] if matrix.zero_points else [])
    sizes = {"N": matrix.rows, "K": matrix.cols, "bits": matrix.bits, "block_size": matrix.group}
    return graph.op("MatMulNBits", *inputs, **sizes)


def rows_of(graph: OnnxGraph, ids: str, matrix: Matrix) -> str:
    """The rows `ids` [tokens] of a weight, float32 [tokens, cols]."""
    return _decoded(graph, matrix, lambda name: graph.op("Gather", name, ids))


def dense(graph: OnnxGraph, matrix: Matrix) -> str:
    """The whole weight, float32 [rows, cols]."""
    return _decoded(graph, matrix, lambda name: name)


def _decoded(graph: OnnxGraph, matrix: Matrix, rows: Callable[[str], str]) -> str:
    """What `rows` leaves of a weight, and of what belongs to it."""
    found = rows(matrix.codes)
    if matrix.scales is None:
        return _float32(graph, found)
    if matrix.bits == 4:
        low = graph.op("BitwiseAnd", found, graph.constant(15, np.uint8))
        high = graph.op("BitShift", found, graph.constant(4, np.uint8), direction="RIGHT")
        pairs = [graph.op("Unsqueeze", half, graph.constant([3])) for half in (low, high)]
        found = graph.op("Reshape", graph.op("Concat", *pairs, axis=3), graph.constant([0, 0, matrix.group]))

    def of_groups(name: str) -> str:
        return graph.op("Unsqueeze", rows(name), graph.constant([2]))

    zero = graph.constant(1 << (matrix.bits - 1), np.float32)
    values = graph.op("Sub", _float32(graph, found), of_groups(matrix.zero_points) if matrix.zero_points else zero)
    return graph.op("Reshape", graph.op("Mul", values, of_groups(matrix.scales)), graph.constant([0, matrix.cols]))


def _float32(graph: OnnxGraph, value: str) -> str:
    return graph.op("Cast", value, to=TensorProto.FLOAT)
