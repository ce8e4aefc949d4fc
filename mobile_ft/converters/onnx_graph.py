"""Builds an ONNX graph node by node. Weights are written to a data file at once, so only one is in memory."""

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

GRAPH_FILE, DATA_FILE = "model.onnx", "model.onnx.data"

_OPSET, _IR_VERSION = 21, 10
_ALIGNMENT = 4096  # so that tensors can be mapped
_MICROSOFT = ("MatMulNBits", "MatMulBnb4")  # onnxruntime's own operators


class OnnxGraph:
    """An ONNX graph. Weights are written to `data`, the file DATA_FILE beside the graph."""

    def __init__(self, data: BinaryIO) -> None:
        self._data = data
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def input(self, name: str, dtype: npt.DTypeLike, shape: list[int | str]) -> str:
        """Adds an input. A string in the shape names a dynamic size."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: npt.DTypeLike, shape: list[int | str]) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_value_info(name, dtype, shape))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output and returns the output's name."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Adds a node with several outputs and returns their names."""
        names = [f"{kind}_{len(self._nodes)}_{i}" for i in range(count)]
        domain = "com.microsoft" if kind in _MICROSOFT else ""
        self._nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """Adds a small tensor to the graph, once per value, and returns its name."""
        array = np.asarray(values, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"constant_{len(self._constants)}"
            self._initializers.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def weight(self, name: str, array: npt.NDArray) -> str:
        """Writes a large tensor to the data file and returns its name."""
        self._data.write(bytes(-self._data.tell() % _ALIGNMENT))
        tensor = TensorProto(name=name, data_type=_type(array.dtype), dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": DATA_FILE, "offset": self._data.tell(), "length": array.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self._data.write(np.ascontiguousarray(array).data)
        self._initializers.append(tensor)
        return name

    def optional_input(self, name: str, array: npt.NDArray) -> str:
        """Adds a weight that the caller can replace by an input."""
        self.input(name, array.dtype, list(array.shape))
        return self.weight(name, array)

    def save(self, path: Path, name: str) -> None:
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._initializers)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="mobile-ft")
        path.write_bytes(model.SerializeToString())


def _value_info(name: str, dtype: npt.DTypeLike, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _type(np.dtype(dtype)), shape)


def _type(dtype: np.dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))
