"""Packed matrices in ONNX: codes in the layout of onnxruntime's own operators, and q8_1 as float16.

MatMulNBits computes x W^T with W = scale * (code - zero_point) by groups of columns. It represents q4_0, q4_1 and q8_0
exactly, and also iq4_nl, whose levels are 8-bit integers. MatMulBnb4 has the codebooks of bitsandbytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from mobile_ft.converters.fine_tuned import FineTuned, check_range
from mobile_ft.converters.onnx_graph import OnnxGraph
from mobile_ft.model.formats import CODEBOOKS, F32, FORMATS, U8, Format, unpack, unpack_codes

_BITS = {"q4_0": 4, "q4_1": 4, "q8_0": 8, "iq4_nl": 8, "nf4": 4, "fp4": 4}
_BNB4 = {"fp4": 0, "nf4": 1}  # quant_type


@dataclass(frozen=True)
class Matrix:
    """Names of a weight's tensors. The weight [rows, cols] is scale * (code - zero point), or scale *
    codebook[code]."""

    rows: int
    cols: int
    codes: str  # uint8 [rows, groups, bytes], or [bytes] with a codebook; or the weight itself, float16 [rows, cols]
    scales: str | None = None  # float32 [rows, groups], or [rows * groups] with a codebook
    zero_points: str | None = None  # float32 [rows, groups]; None means 2^(bits - 1)
    codebook: str | None = None  # nf4 or fp4
    bits: int = 16
    group: int = 0


def add_matrix(graph: OnnxGraph, model: FineTuned, name: str) -> Matrix:
    """Adds a matrix of the model, without the adapter."""
    parts = {end: graph.weight(name + end, array) for end, array in matrix_arrays(model, name).items()}
    return _matrix(parts, FORMATS[model.format_of(name)], *model.shapes[name])


def matrix_arrays(model: FineTuned, name: str) -> dict[str, npt.NDArray]:
    """Returns {suffix of the name: array} of a weight without the adapter: .codes, .scales, .zero_points; or
    float16."""
    fmt, rows = FORMATS[model.format_of(name)], model.shapes[name][0]
    packed = model.packed(name)
    if fmt.kind not in _BITS:
        with np.errstate(over="ignore"):
            values = unpack(packed, model.format_of(name), rows).astype(np.float16)
        check_range(name, values)
        return {"": values}
    codes, scales, zero_points = affine(packed, model.format_of(name), rows)
    if fmt.kind in _BNB4:
        flat = codes.reshape(-1)
        return {".codes": flat[0::2] << 4 | flat[1::2], ".scales": scales.reshape(-1)}
    arrays: dict[str, npt.NDArray] = {".codes": codes, ".scales": scales}
    if _BITS[fmt.kind] == 4:
        arrays[".codes"] = codes[..., 0::2] | codes[..., 1::2] << 4
    return arrays if zero_points is None else arrays | {".zero_points": zero_points}


def matrix_input(graph: OnnxGraph, name: str, fmt: str, rows: int, cols: int) -> Matrix:
    """Adds a weight as an input, in the layout of `matrix_arrays`."""
    kind = FORMATS[fmt]
    if kind.kind not in _BITS:
        return _matrix({"": graph.input(name, np.float16, [rows, cols])}, kind, rows, cols)
    bits, groups, flat = _BITS[kind.kind], cols // kind.group, kind.kind in _BNB4
    code_shape: list[int | str] = [rows * cols // 2] if flat else [rows, groups, kind.group * bits // 8]
    parts = {".codes": graph.input(f"{name}.codes", np.uint8, code_shape)}
    for end in (".scales", *((".zero_points",) if kind.kind == "q4_1" else ())):
        parts[end] = graph.input(name + end, np.float32, [rows * groups] if flat else [rows, groups])
    return _matrix(parts, kind, rows, cols)


def _matrix(parts: dict[str, str], fmt: Format, rows: int, cols: int) -> Matrix:
    if fmt.kind not in _BITS:
        return Matrix(rows, cols, parts[""])
    codes, scales, zero_points = parts[".codes"], parts[".scales"], parts.get(".zero_points")
    codebook = fmt.kind if fmt.kind in _BNB4 else None
    return Matrix(rows, cols, codes, scales, zero_points, codebook, _BITS[fmt.kind], fmt.group)


def affine(packed: U8, name: str, rows: int) -> tuple[U8, F32, F32 | None]:
    """Returns codes [rows, groups, group], scales and zero points [rows, groups]. Zero points are None if all are
    2^(bits - 1), and for the codebooks of bitsandbytes."""
    codes, header = unpack_codes(packed, name, rows)
    kind, scales = FORMATS[name].kind, header[0]
    if kind == "q8_0":
        codes = codes ^ np.uint8(128)
    if kind == "iq4_nl":
        codes = (CODEBOOKS[kind] + 128).astype(np.uint8)[codes]
    if kind != "q4_1":
        return codes, scales, None
    minima = header[1]
    flat = scales == 0  # all weights of the group are its minimum, which is then used as the scale
    codes[flat] = 1
    scales = np.where(flat, minima, scales)
    return codes, scales, np.where(flat, 0, -minima / np.where(flat, 1, scales)).astype(np.float32)


def product(graph: OnnxGraph, x: str, matrix: Matrix) -> str:
    """Adds the product x [tokens, cols] W^T, float32 [tokens, rows]."""
    if matrix.scales is None:
        return graph.op("Gemm", x, _float32(graph, matrix.codes), transB=1)
    inputs = [x, matrix.codes, matrix.scales] + ([matrix.zero_points] if matrix.zero_points else [])
    sizes = {"N": matrix.rows, "K": matrix.cols, "block_size": matrix.group}
    if matrix.codebook is not None:
        return graph.op("MatMulBnb4", *inputs, quant_type=_BNB4[matrix.codebook], **sizes)
    return graph.op("MatMulNBits", *inputs, bits=matrix.bits, **sizes)


def rows_of(graph: OnnxGraph, ids: str, matrix: Matrix) -> str:
    """Adds the lookup of the rows `ids` [tokens] of a weight, float32 [tokens, cols]."""
    return _decoded(graph, matrix, lambda name: graph.op("Gather", name, ids))


def dense(graph: OnnxGraph, matrix: Matrix) -> str:
    """Adds the decoding of the whole weight, float32 [rows, cols]."""
    return _decoded(graph, matrix, lambda name: name)


def _decoded(graph: OnnxGraph, matrix: Matrix, rows: Callable[[str], str]) -> str:
    """Decodes the rows that `rows` selects from each of a weight's tensors."""
    if matrix.scales is None:
        return _float32(graph, rows(matrix.codes))

    def by_groups(name: str, one: bool) -> str:
        """`one` means that the tensor has one value per group."""
        if matrix.codebook is not None:
            return rows(graph.op("Reshape", name, graph.constant([matrix.rows, matrix.cols // matrix.group, -1])))
        return graph.op("Unsqueeze", rows(name), graph.constant([2])) if one else rows(name)

    codes, scales = by_groups(matrix.codes, one=False), by_groups(matrix.scales, one=True)
    if matrix.bits == 4:
        low = graph.op("BitwiseAnd", codes, graph.constant(15, np.uint8))
        high = graph.op("BitShift", codes, graph.constant(4, np.uint8), direction="RIGHT")
        halves = (low, high) if matrix.codebook is None else (high, low)
        pairs = [graph.op("Unsqueeze", half, graph.constant([3])) for half in halves]
        codes = graph.op("Reshape", graph.op("Concat", *pairs, axis=3), graph.constant([0, 0, matrix.group]))
    if matrix.codebook is not None:
        index = graph.op("Cast", codes, to=TensorProto.INT32)
        values = graph.op("Gather", graph.constant(CODEBOOKS[matrix.codebook], np.float32), index)
    else:
        middle = graph.constant(1 << (matrix.bits - 1), np.float32)
        zero_points = by_groups(matrix.zero_points, one=True) if matrix.zero_points else middle
        values = graph.op("Sub", _float32(graph, codes), zero_points)
    return graph.op("Reshape", graph.op("Mul", values, scales), graph.constant([0, matrix.cols]))


def _float32(graph: OnnxGraph, value: str) -> str:
    return graph.op("Cast", value, to=TensorProto.FLOAT)
