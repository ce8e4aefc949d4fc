"""Traces the methods of the program: forwards directly, and backwards by autograd over the unit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from mobile_ft.export.program.program import HEAD_TOKENS, MLP_TOKENS, KindMethods
from mobile_ft.export.program.split import split_at_gradient
from mobile_ft.model import units
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.formats import packed_shape
from mobile_ft.model.unit_spec import UnitSpec

EXAMPLE_TOKENS = 7


@dataclass(frozen=True)
class Method:
    """A method of the program."""

    program: ExportedProgram
    tokens: int  # maximum number of tokens


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def _export(function: Callable[..., Any], inputs: list[Tensor], token_dims: list[int | None], most: int) -> Method:
    """Exports `function` for up to `most` tokens. `token_dims` has the token dimension of each input, or None."""
    tokens = Dim("tokens", min=2, max=most)
    shapes = tuple(None if dim is None else {dim: tokens} for dim in token_dims)
    return Method(torch.export.export(_Function(function), tuple(inputs), dynamic_shapes=(shapes,), strict=False), most)


def packed_example(in_features: int, out_features: int, fmt: str) -> Tensor:
    return torch.empty(packed_shape(fmt, out_features, in_features), dtype=torch.uint8)


def _unit_inputs(spec: UnitSpec) -> tuple[list[Tensor], list[Tensor]]:
    weights = [torch.empty(shape) for shape in spec.vectors.values()]
    lora = []
    for linear in spec.linears:
        weights.append(packed_example(linear.in_features, linear.out_features, linear.format))
        if linear.lora:
            lora += [torch.empty(shape) for shape in linear.lora_shapes(spec.lora_rank)]
    return weights, lora


def _clean_up(module: fx.GraphModule) -> None:
    """Removes all ops but custom ones: autograd's detach has no effect after tracing, and aten's add of gradients is
    replaced."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.target = torch.ops.mobile_ft.add.default
    module.graph.eliminate_dead_code()
    module.recompile()


@dataclass(frozen=True)
class UnitMethods:
    """The methods of a kind of units, and their description in bundle.json."""

    methods: dict[str, Method]
    kind: KindMethods


def _saved_entry(node: fx.Node, tokens: str, spec: UnitSpec) -> dict[str, Any]:
    tensor = node.meta["val"]
    shape = [-1 if str(n) == tokens else int(n) for n in tensor.shape]
    dtype = str(tensor.dtype).removeprefix("torch.")
    # Tensors with one value per row or head always stay exact.
    wide = dtype == "float32" and shape[0] == -1 and len(shape) == 2 and shape[1] > spec.config.num_attention_heads
    return {"shape": shape, "dtype": dtype, "stored": _stored(node, spec) if wide else dtype}


def _stored(node: fx.Node, spec: UnitSpec) -> str:
    """Returns the format in which an activation is stored. int8 is too coarse for queries and keys, whose products are
    the input of an exponential, and for the product and factor of a 2-bit gate, which are divided."""
    if spec.activation == "exact":
        return "float32"
    marks = node.meta.get("custom", {})
    if units.EXPONENT in marks or spec.activation == "approx2bit":
        return "float16"
    return "int4" if units.FACTOR in marks and spec.activation == "int4" else "int8"


@dataclass(frozen=True)
class UnitTrace:
    """A unit as functions of its inputs: activations; positions, what it takes from elsewhere and inv_freq if it has
    them; weights, lora."""

    forward: Callable[..., tuple[Tensor, ...]]  # inputs -> y, given
    # dy, those of what it gives, inputs -> y, given, dx, those of keys and values that it takes, those of lora; from
    # autograd
    joint: fx.GraphModule
    inputs: list[Tensor]  # example inputs
    dims: list[int | None]  # token dimension of each input
    given: list[Tensor]  # examples of what it gives


def trace_unit(spec: UnitSpec) -> UnitTrace:
    """Traces a unit, once per kind."""
    c = spec.config
    weights, lora = _unit_inputs(spec)
    n = len(weights)
    x = torch.empty(EXAMPLE_TOKENS, c.hidden_size)
    positions = [torch.zeros(EXAMPLE_TOKENS, dtype=torch.int64)] if spec.takes_positions else []
    beside = [torch.empty(EXAMPLE_TOKENS, width) for width in spec.side_widths]
    side, given = ([], beside) if spec.side == "gives" else (beside, [])
    inv_freq = [torch.empty(spec.rotary_pairs)] if spec.rotary_pairs else []
    p = len(positions)
    s = p + len(side)
    e = s + len(inv_freq)
    inputs = [x, *positions, *side, *inv_freq, *weights, *lora]
    dims: list[int | None] = [0, *[0] * s, *[None] * len(inv_freq + weights + lora)]

    def forward(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        place, rotary = rest[0] if positions else None, rest[s] if inv_freq else None
        return units.forward(spec, x, place, list(rest[p:s]), rotary, list(rest[e : e + n]), list(rest[e + n :]))

    def joint(*dy_and_inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the outputs, and the gradients of x, keys and values, and lora from autograd."""
        dy, (x, *rest) = dy_and_inputs[: 1 + len(given)], dy_and_inputs[1 + len(given) :]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            shared = [t.detach().requires_grad_() for t in rest[p:s]] if spec.side == "takes" else []
            adapters = [t.detach().requires_grad_() for t in rest[e + n :]]
            y = forward(x, *rest[:p], *(shared or rest[p:s]), *rest[s : e + n], *adapters)
            return *y, *torch.autograd.grad(y, [x, *shared, *adapters], dy)

    with preserve_node_meta():  # keeps the marks of the graph's nodes
        gradients = [x.clone(), *(t.clone() for t in given)]
        traced = make_fx(joint, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*gradients, *inputs)
    _clean_up(traced)
    return UnitTrace(forward, traced, inputs, dims, given)


def unit_methods(spec: UnitSpec, max_seq_len: int) -> UnitMethods:
    """Returns `<kind>_forward`, `_backward_recompute`, `_forward_save`, `_backward` and, unless it is an MLP,
    `_decode`.

    Inputs are those of UnitTrace. Backwards have dy and the gradients of what the unit gives before them, what it gives
    behind its positions, and `_backward` has the saved tensors after them.
    """
    trace = trace_unit(spec)
    inputs, dims, traced = trace.inputs, trace.dims, trace.joint
    most = max_seq_len if spec.takes_positions else min(max_seq_len, MLP_TOKENS)
    x, given = inputs[0], trace.given
    g = len(given)
    split = split_at_gradient(traced, g)
    tokens = str(next(iter(traced.graph.nodes)).meta["val"].shape[0])  # the symbol; other sizes may also be 7
    saved = [_saved_entry(node, tokens, spec) for node in split.saved]
    saved_examples = [
        torch.empty([EXAMPLE_TOKENS if n < 0 else n for n in entry["shape"]], dtype=node.meta["val"].dtype)
        for entry, node in zip(saved, split.saved, strict=True)
    ]
    saved_dims = [entry["shape"].index(-1) for entry in saved]

    of_backward = [x.clone(), *(t.clone() for t in given), *inputs[:2], *given, *inputs[2:]]
    backward_dims = [*[0] * (1 + g), *dims[:2], *[0] * g, *dims[2:]]

    def recompute(*rest: Tensor) -> Any:
        behind = 3 + 2 * g  # gradients, x, positions, what it gives
        between = split.forward_save(*rest[1 + g : 3 + g], *rest[behind:])[1 + g :]
        return split.backward(*rest, *between)

    methods = {
        f"{spec.kind}_forward": _export(trace.forward, inputs, dims, most),
        f"{spec.kind}_forward_save": _export(split.forward_save, inputs, dims, most),
        f"{spec.kind}_backward": _export(
            split.backward, [*of_backward, *saved_examples], [*backward_dims, *saved_dims], most
        ),
        f"{spec.kind}_backward_recompute": _export(recompute, of_backward, backward_dims, most),
    }
    if spec.takes_positions:
        methods[f"{spec.kind}_decode"] = _decode_method(spec, trace, max_seq_len)
    return UnitMethods(methods, KindMethods(most, saved, split.reads_x))


def _decode_method(spec: UnitSpec, trace: UnitTrace, max_seq_len: int) -> Method:
    """Returns the method for decoding, which has caches or the state after the positions."""
    x, positions, *rest = trace.inputs
    n = len(spec.weights)
    cache = torch.empty(max_seq_len, 0 if spec.attention is None else spec.attention.keys)
    held = [] if spec.attention is None else [cache, cache.clone()]
    held += [torch.empty(spec.state_shape)] if any(spec.state_shape) else []
    h = 2 + len(held)  # behind what is held
    s = h + len(spec.side_widths) * (spec.side == "takes")
    first = s + (spec.rotary_pairs > 0)  # weight

    def decode(*i: Tensor) -> tuple[Tensor, ...]:
        inv_freq = i[s] if spec.rotary_pairs else None
        weights, lora = list(i[first : first + n]), list(i[first + n :])
        return units.decode(spec, i[0], i[1], list(i[2:h]), list(i[h:s]), inv_freq, weights, lora)

    dims = [0, 0, *[None] * len(held), *trace.dims[2:]]
    return _export(decode, [x, positions, *held, *rest], dims, max_seq_len)


def per_layer_methods(config: ModelConfig, table_fmt: str, linear_fmt: str, max_seq_len: int) -> dict[str, Method]:
    """Returns `per_layer_rows`, which reads the rows of one token, and `per_layer_inputs`, which computes those of one
    layer for several tokens."""
    c, width = config, config.hidden_size_per_layer_input
    rows = torch.zeros(c.num_hidden_layers, dtype=torch.int64)
    table = packed_example(width, c.vocab_size * c.num_hidden_layers, table_fmt)
    x, e = torch.empty(EXAMPLE_TOKENS, c.hidden_size), torch.empty(EXAMPLE_TOKENS, width)
    weight = packed_example(c.hidden_size, width, linear_fmt)
    most = min(max_seq_len, MLP_TOKENS)
    return {
        "per_layer_rows": _export(
            lambda *i: units.per_layer_rows(c, table_fmt, *i), [rows, table], [None, None], EXAMPLE_TOKENS
        ),
        "per_layer_inputs": _export(
            lambda *i: units.per_layer_inputs(c, linear_fmt, *i),
            [x, e, torch.empty(width), weight],
            [0, 0, None, None],
            most,
        ),
    }


def end_methods(config: ModelConfig, embed_fmt: str, head_fmt: str, max_seq_len: int) -> dict[str, Method]:
    """Returns `embed`, `head`, `head_loss` and `logits`. All but `embed` take at most HEAD_TOKENS tokens."""
    c = config
    tokens = torch.zeros(EXAMPLE_TOKENS, dtype=torch.int64)
    x, norm = torch.empty(EXAMPLE_TOKENS, c.hidden_size), torch.empty(c.hidden_size)
    table = packed_example(c.hidden_size, c.vocab_size, embed_fmt)
    weight = packed_example(c.hidden_size, c.vocab_size, head_fmt)

    def export(function: Callable[..., Any], fmt: str, inputs: list[Tensor], dynamic: int) -> Method:
        """Exports a function. The first dimension of the first `dynamic` inputs is the token count."""
        dims = [0 if i < dynamic else None for i in range(len(inputs))]
        most = max_seq_len if function is units.embed else min(max_seq_len, HEAD_TOKENS)
        return _export(lambda *i: function(c, fmt, *i), inputs, dims, most)

    return {
        "embed": export(units.embed, embed_fmt, [tokens, table], 1),
        "head": export(units.head, head_fmt, [x, tokens, norm, weight], 2),
        "head_loss": export(units.head_loss, head_fmt, [x, tokens, norm, weight], 2),
        "logits": export(units.logits, head_fmt, [x, norm, weight], 1),
    }
