"""Lowers traced methods to one ExecuTorch program."""

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.passes import MemoryPlanningPass
from torch.export import ExportedProgram

from mobile_ft.export.program.trace import Method


def lower(methods: dict[str, Method]) -> ExecutorchProgramManager:
    """Lowers the methods. They share one arena; the runtime allocates inputs and outputs outside of it.

    Converts the graphs of `methods` to edge dialect in place. They only have custom ops, which need no decomposition.
    `to_edge` would give the same program, but takes ten times as long, because it runs each graph about twenty times.
    """
    for name, method in methods.items():
        _to_edge(name, method.program)
    programs = {name: method.program for name, method in methods.items()}
    edge = EdgeProgramManager(programs, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def _to_edge(name: str, program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        op = node.target
        if isinstance(op, torch._ops.OpOverload):
            if op.namespace != "mobile_ft":
                raise ValueError(f"method {name}: {op} is not an op of mobile_ft and would need decomposition")
            packet = getattr(exir_ops.edge.mobile_ft, op._opname)
            node.target = getattr(packet, op._overloadname)
