"""Splits a traced forward and backward at the input of the gradient. The tensors that cross the cut are those that a
unit stores."""

import operator
from dataclasses import dataclass

import torch
from torch import fx

from mobile_ft.model import ops  # noqa: F401 (registers torch.ops.mobile_ft)

# These ops are cheap, so the backward recomputes them if their inputs are saved anyway.
_CHEAP = {
    torch.ops.mobile_ft.affine.default,
    torch.ops.mobile_ft.swiglu.default,
    torch.ops.mobile_ft.geglu.default,
    torch.ops.mobile_ft.rms_norm.default,
    torch.ops.mobile_ft.rope.default,
}


@dataclass(frozen=True)
class Split:
    forward_save: fx.GraphModule  # inputs -> y, what the unit gives, saved tensors
    # gradients of these, x, positions, what it gives, other inputs, saved tensors -> gradients
    backward: fx.GraphModule
    saved: list[fx.Node]  # the tensors that the forward saves for the backward
    reads_x: bool  # whether the backward also needs the unit's input


def split_at_gradient(joint: fx.GraphModule, given: int = 0) -> Split:
    """Splits (dy, x, other inputs...) -> (y, gradients...). A node belongs to the backward if it depends on dy.

    A unit that gives keys and values to later units has `given` more outputs behind y, and their gradients behind dy.
    Its backward takes them as inputs, behind x and positions, because they are kept for the later units anyway.
    """
    nodes = list(joint.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    output = next(n for n in nodes if n.op == "output")
    outputs, gradients = output.args[0][: 1 + given], output.args[0][1 + given :]
    kept = outputs[1:]
    after = set(placeholders[: 1 + given])
    for node in nodes:
        if any(source in after for source in node.all_input_nodes):
            after.add(node)
    after.remove(output)
    needed = {source for node in after for source in node.all_input_nodes}
    saved: list[fx.Node] = []
    again: set[fx.Node] = set()
    for node in nodes:
        op = node.args[0] if node.target is operator.getitem else node
        if node in kept:
            continue
        if op.target in _CHEAP and set(node.all_input_nodes) <= again.union(saved, placeholders, kept):
            again.add(node)
        elif node in needed - after and node.op != "placeholder":
            saved.append(node)

    first, second = fx.Graph(), fx.Graph()
    first_copy: dict[fx.Node, fx.Node] = {}
    second_copy: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node not in after and node is not output:
            first_copy[node] = first.node_copy(node, first_copy.__getitem__)
    first.output(tuple(first_copy[node] for node in (*outputs, *saved)))

    for i, node in enumerate(placeholders):
        if i == 3 + given:
            second_copy |= {x: second.placeholder(f"given_{x.name}") for x in kept}
        second_copy[node] = second.node_copy(node)
    for node in saved:
        second_copy[node] = second.placeholder(f"saved_{node.name}")
    for node in nodes:
        if node.op != "placeholder" and node in after | again:
            second_copy[node] = second.node_copy(node, second_copy.__getitem__)
    second.output(tuple(second_copy[node] for node in gradients))

    for graph in (first, second):
        graph.eliminate_dead_code()
    return Split(
        fx.GraphModule(joint, first),
        fx.GraphModule(joint, second),
        saved,
        bool(second_copy[placeholders[1 + given]].users),
    )
