"""`--to onnx-training`: the training graph unit by unit, for programs that run ONNX and not ExecuTorch."""

import io
import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.converters.onnx_graph import OnnxGraph
from mobile_ft.converters.onnx_matrix import matrix_arrays, matrix_input
from mobile_ft.converters.onnx_ops import OPS
from mobile_ft.errors import UserError
from mobile_ft.export.program.trace import EXAMPLE_TOKENS, packed_example, trace_unit
from mobile_ft.model import units
from mobile_ft.model.lora import CONFIG_FILE, WEIGHTS_FILE, adapter_key, write_adapter
from mobile_ft.model.unit_spec import UnitSpec, unit_specs

INDEX_FILE = "training.json"
FILES = (INDEX_FILE, "*.onnx", "*.safetensors", CONFIG_FILE)


def write(model: FineTuned, out: Path) -> None:
    """Writes FILES into the folder `out`; docs/reference/convert.md describes them. Only one unit's weights and the
    embedding are in memory at the same time."""
    c = model.config
    specs = unit_specs(model, model.bundle.lora, "exact")
    if any(spec.side for _, spec in specs):
        raise UserError(
            f"to onnx-training: does not support model_type {c.model_type}, whose layers share keys and values or have "
            "per-layer embeddings; use to hf"
        )
    for spec in {spec.kind: spec for _, spec in specs}.values():
        _write_unit(out, model, spec)
    _write_ends(out, model)
    entries = []
    for layer, spec in specs:
        prefix, name = f"model.layers.{layer}.", f"layers.{layer}.{spec.type}"
        tensors = {"inv_freq": model.inv_freq(layer)} if spec.rotary_pairs else {}
        for part, shape in spec.vectors.items():
            vector = model.vector(prefix + part)
            tensors[part] = vector if len(shape) == 1 else vector[:, 0].T  # a convolution's taps become rows
        for linear in spec.linears:
            weight = f"{linear.name}.weight"
            tensors |= {weight + end: x for end, x in matrix_arrays(model, prefix + weight).items()}
        save_file({key: np.ascontiguousarray(x) for key, x in tensors.items()}, out / f"{name}.safetensors")
        adapter = {key: adapter_key(layer, key, model.bundle.base.modules) for key in spec.lora}
        entries.append({"name": name, "kind": spec.kind, "weights": f"{name}.safetensors", "adapter": adapter})
    ends = {f"{c.embedding}{end}": x for end, x in matrix_arrays(model, c.embedding).items()}
    save_file(ends, out / "embed.safetensors")
    head = {"norm": model.vector(model.final_norm)}
    head |= {f"head{end}": x for end, x in matrix_arrays(model, model.head).items()}
    save_file(head, out / "head.safetensors")
    write_adapter(out, model.bundle.lora, model.bundle.base, model.adapter)
    index = {"model": c.to_json(), "units": entries, "adapter": WEIGHTS_FILE}
    (out / INDEX_FILE).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _write_unit(out: Path, model: FineTuned, spec: UnitSpec) -> None:
    """Writes `<kind>_forward.onnx`, which returns y, and `<kind>_backward.onnx`, which also takes dy, recomputes the
    forward, and returns dx and the gradients of LoRA's A and B."""
    traced = trace_unit(spec).joint
    names = ["dy", "x", *(["positions"] if spec.takes_positions else []), *(["inv_freq"] if spec.rotary_pairs else [])]
    names += [*spec.weights, *spec.lora]
    matrices = {
        f"{linear.name}.weight": (linear.format, linear.out_features, linear.in_features) for linear in spec.linears
    }
    y, *gradients = _results(traced)
    _save(out / f"{spec.kind}_forward.onnx", traced, names, matrices, {"y": y})
    outputs = dict(zip(["dx", *(f"d.{name}" for name in spec.lora)], gradients, strict=True))
    _save(out / f"{spec.kind}_backward.onnx", traced, names, matrices, outputs)


def _write_ends(out: Path, model: FineTuned) -> None:
    """Writes `embed.onnx`, and `head.onnx`, which returns each token's loss and the gradient of x."""
    c = model.config
    tokens = torch.zeros(EXAMPLE_TOKENS, dtype=torch.int64)
    x, norm = torch.empty(EXAMPLE_TOKENS, c.hidden_size), torch.empty(c.hidden_size)
    for name, weight, function, inputs in (
        ("embed", c.embedding, units.embed, {"tokens": tokens}),
        ("head", model.head, units.head, {"x": x, "targets": tokens, "norm": norm}),
    ):
        fmt = model.format_of(weight)
        packed = packed_example(c.hidden_size, c.vocab_size, fmt)
        called: Callable[..., Any] = lambda *given, function=function, fmt=fmt: function(c, fmt, *given)  # noqa: E731
        traced = make_fx(called, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs.values(), packed)
        matrix = c.embedding if name == "embed" else "head"
        results = dict(zip(["x"] if name == "embed" else ["losses", "dx"], _results(traced), strict=True))
        matrices = {matrix: (fmt, c.vocab_size, c.hidden_size)}
        _save(out / f"{name}.onnx", traced, [*inputs, matrix], matrices, results)


def _results(traced: fx.GraphModule) -> list[fx.Node]:
    (returned,) = next(node for node in traced.graph.nodes if node.op == "output").args
    return [returned] if isinstance(returned, fx.Node) else list(returned)


def _save(
    path: Path,
    traced: fx.GraphModule,
    names: list[str],
    matrices: dict[str, tuple[str, int, int]],
    outputs: dict[str, fx.Node],
) -> None:
    """Writes the part of a traced graph that computes `outputs`. `names` are the names of its inputs. `matrices` has
    the format, rows and columns of the inputs that are packed weights."""
    g = OnnxGraph(io.BytesIO())
    needed, left = set(), list(outputs.values())
    while left:
        node = left.pop()
        if node not in needed:
            needed.add(node)
            left += node.all_input_nodes
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    tokens = str(placeholders[0].meta["val"].shape[0])  # the symbol of the token count; other sizes have other symbols
    values: dict[fx.Node, Any] = {}
    for node, name in zip(placeholders, names, strict=True):
        if node not in needed:
            continue
        if name in matrices:
            values[node] = matrix_input(g, name, *matrices[name])
        else:
            meta = node.meta["val"]
            dtype = np.int64 if meta.dtype == torch.int64 else np.float32
            values[node] = g.input(name, dtype, _shape(node, tokens))
    for node in traced.graph.nodes:
        if node.op != "call_function" or node not in needed:
            continue
        arguments = [values[x] if isinstance(x, fx.Node) else x for x in node.args]
        if node.target is operator.getitem:
            values[node] = arguments[0][arguments[1]]
            continue
        op = node.target.__name__.split(".")[0]
        if op not in OPS:
            raise UserError(f"to onnx-training: the model needs {op}, which is not supported; use another target")
        found = OPS[op](g, node, *arguments)
        values[node] = found if len(found) > 1 else found[0]
    for name, node in outputs.items():
        g.output(name, values[node], np.float32, _shape(node, tokens))
    g.save(path, path.stem)


def _shape(node: fx.Node, tokens: str) -> list[int | str]:
    return ["tokens" if str(size) == tokens else int(size) for size in node.meta["val"].shape]
