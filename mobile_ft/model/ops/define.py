"""Defines a custom op: a functional variant with a reference, an `.out` variant for ExecuTorch, fake and autograd."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library

NAMESPACE = "mobile_ft"
_library = Library(NAMESPACE, "DEF")


def define_op(
    schema: str,
    reference: Callable[..., Any],
    fake: Callable[..., Any],
) -> Any:
    """Registers `schema` ("name(Tensor x) -> Tensor", outputs all tensors) and its `.out` variant.

    `reference` computes on dense float32 tensors and returns new tensors; `fake` returns tensors of the output shapes.
    Returns the callable op, `torch.ops.mobile_ft.<name>`.
    """
    match = re.fullmatch(r"(\w+)\((.*)\) -> (.*)", schema)
    assert match is not None, schema
    name, args, returns = match.groups()
    outputs = returns.count("Tensor")
    names = ["out"] if outputs == 1 else [f"out{i}" for i in range(outputs)]
    out_args = ", ".join(f"Tensor({chr(97 + i)}!) {n}" for i, n in enumerate(names))
    out_returns = ", ".join(f"Tensor({chr(97 + i)}!)" for i in range(outputs))
    _library.define(schema)
    _library.define(f"{name}.out({args}, *, {out_args}) -> {out_returns if outputs == 1 else f'({out_returns})'}")

    def out_variant(*inputs: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(n) for n in names]
        results = reference(*inputs, **kwargs)
        for out, result in zip(outs, [results] if outputs == 1 else results, strict=True):
            out.copy_(result)
        return outs[0] if outputs == 1 else tuple(outs)

    _library.impl(name, reference, "CompositeExplicitAutograd")
    _library.impl(f"{name}.out", out_variant, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return getattr(torch.ops.mobile_ft, name)


def define_autograd(name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]) -> None:
    """Registers the backward of op `name`. Both callables are arguments of `torch.library.register_autograd`."""
    torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_library)
