"""Splits a traced forward and backward where the gradient enters: what crosses the cut is what storing means."""

import torch
from torch import fx


def split_at_gradient(joint: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule, list[torch.Tensor]]:
    """(dy, inputs...) -> (y, gradients...) becomes two graphs, and examples of the tensors between them.

    The first takes the inputs and gives y and the saved tensors; the second takes dy, the inputs and the saved tensors
    and gives the gradients. A node belongs to the second if it depends on dy.
    """
    nodes = list(joint.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    output = next(n for n in nodes if n.op == "output")
    y, *gradients = output.args[0]
    after = {placeholders[0]}
    for node in nodes:
        if any(source in after for source in node.all_input_nodes):
            after.add(node)
    saved = [
        node
        for node in nodes
        if node not in after and node.op != "placeholder" and any(u in after and u is not output for u in node.users)
    ]

    first, second = fx.Graph(), fx.Graph()
    first_copy: dict[fx.Node, fx.Node] = {}
    second_copy: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if node not in after:
            first_copy[node] = first.node_copy(node, first_copy.__getitem__)
    first.output(tuple(first_copy[node] for node in (y, *saved)))

    for node in placeholders:
        second_copy[node] = second.node_copy(node)
    for node in saved:
        second_copy[node] = second.placeholder(f"saved_{node.name}")
    for node in nodes:
        if node in after and node is not output and node.op != "placeholder":
            second_copy[node] = second.node_copy(node, second_copy.__getitem__)
    second.output(tuple(second_copy[node] for node in gradients))

    for graph in (first, second):
        graph.eliminate_dead_code()
    return fx.GraphModule(joint, first), fx.GraphModule(joint, second), [node.meta["val"] for node in saved]
