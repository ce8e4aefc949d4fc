"""Traces the methods of the program: forwards as they are, backwards by autograd over the unit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx

from mobile_ft import units
from mobile_ft.config import ModelConfig
from mobile_ft.formats import packed_shape
from mobile_ft.units import UnitSpec

_EXAMPLE_TOKENS = 8


class _Method(nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def _export(function: Callable[..., Any], inputs: list[Tensor], dynamic: int, max_seq_len: int) -> ExportedProgram:
    """Exports `function`; the first `dynamic` inputs have the token count as their first dimension."""
    tokens = Dim("tokens", min=2, max=max_seq_len)
    shapes = tuple({0: tokens} if i < dynamic else None for i in range(len(inputs)))
    return torch.export.export(_Method(function), tuple(inputs), dynamic_shapes=(shapes,), strict=False)


def _packed(in_features: int, out_features: int, fmt: str) -> Tensor:
    return torch.empty(packed_shape(fmt, out_features, in_features), dtype=torch.uint8)


def _unit_inputs(spec: UnitSpec) -> tuple[list[Tensor], list[Tensor]]:
    weights = [torch.empty(spec.config.hidden_size)]
    lora = []
    for linear in spec.linears:
        weights.append(_packed(linear.in_features, linear.out_features, linear.format))
        if linear.lora:
            lora.append(torch.empty(spec.lora_rank, linear.in_features))
            lora.append(torch.empty(linear.out_features, spec.lora_rank))
    return weights, lora


def _gradient(forward: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """(dy, x, extra..., weights..., lora...) -> (dx, lora gradients...) of `forward(x, extra, weights, lora)`.

    The result contains the recomputation of the forward as far as the gradients need it.
    """

    def gradient(dy: Tensor, x: Tensor, extra: list[Tensor], ws: list[Tensor], lora: list[Tensor]):  # type: ignore[no-untyped-def]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            lora = [t.detach().requires_grad_() for t in lora]
            y = forward(x, *extra, ws, lora)
            return torch.autograd.grad(y, [x, *lora], dy)

    return gradient


def _clean_up(module: torch.fx.GraphModule) -> None:
    """Leaves custom ops only: autograd's detach means nothing once traced, and it sums gradients with aten's add."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.target = torch.ops.mobile_ft.add.default
    module.graph.eliminate_dead_code()
    module.recompile()


def unit_methods(spec: UnitSpec, max_seq_len: int) -> dict[str, ExportedProgram]:
    """`<kind>_forward`, `<kind>_backward_recompute` and, for attention, `<kind>_decode`."""
    c = spec.config
    x = torch.empty(_EXAMPLE_TOKENS, c.hidden_size)
    weights, lora = _unit_inputs(spec)
    n = len(weights)
    extra: list[Tensor] = []
    if spec.type == "attn":
        extra = [torch.zeros(_EXAMPLE_TOKENS, dtype=torch.int64), torch.empty(c.head_dim // 2)]
    dynamic = 1 + len(extra[:1])  # x and positions; inv_freq is fixed
    e = len(extra)

    def forward(x: Tensor, *rest: Any) -> Tensor:
        if spec.type == "attn":
            return units.attn(spec, x, *rest)
        return units.mlp(spec, x, *rest)

    methods = {
        f"{spec.kind}_forward": _export(
            lambda x, *r: forward(x, *r[:e], list(r[e : e + n]), list(r[e + n :])),
            [x, *extra, *weights, *lora],
            dynamic,
            max_seq_len,
        )
    }
    gradient = _gradient(forward)

    def backward(dy: Tensor, x: Tensor, *r: Tensor) -> tuple[Tensor, ...]:
        return gradient(dy, x, list(r[:e]), list(r[e : e + n]), list(r[e + n :]))

    inputs = [x, x.clone(), *extra, *weights, *lora]
    traced = make_fx(backward, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs)
    _clean_up(traced)
    methods[f"{spec.kind}_backward_recompute"] = _export(traced, inputs, dynamic + 1, max_seq_len)

    if spec.type == "attn":
        cache = torch.empty(max_seq_len, c.num_key_value_heads * c.head_dim)
        methods[f"{spec.kind}_decode"] = _export(
            lambda x, p, f, k, v, *r: units.attn_decode(spec, x, p, f, k, v, list(r[:n]), list(r[n:])),
            [x, *extra, cache, cache.clone(), *weights, *lora],
            dynamic,
            max_seq_len,
        )
    return methods


def end_methods(config: ModelConfig, embed_fmt: str, head_fmt: str, max_seq_len: int) -> dict[str, ExportedProgram]:
    """`embed`, `head`, `head_loss` and `logits`."""
    c = config
    tokens = torch.zeros(_EXAMPLE_TOKENS, dtype=torch.int64)
    x, norm = torch.empty(_EXAMPLE_TOKENS, c.hidden_size), torch.empty(c.hidden_size)
    table = _packed(c.hidden_size, c.vocab_size, embed_fmt)
    weight = _packed(c.hidden_size, c.vocab_size, head_fmt)

    def export(function: Callable[..., Any], fmt: str, inputs: list[Tensor], dynamic: int) -> ExportedProgram:
        return _export(lambda *i: function(c, fmt, *i), inputs, dynamic, max_seq_len)

    return {
        "embed": export(units.embed, embed_fmt, [tokens, table], 1),
        "head": export(units.head, head_fmt, [x, tokens, norm, weight], 2),
        "head_loss": export(units.head_loss, head_fmt, [x, tokens, norm, weight], 2),
        "logits": export(units.logits, head_fmt, [x, norm, weight], 1),
    }
