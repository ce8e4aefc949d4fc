"""Lowers traced methods to one ExecuTorch program."""

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.passes import MemoryPlanningPass
from torch.export import ExportedProgram

from mobile_ft.export.program.trace import Method


def lower(methods: dict[str, Method]) -> ExecutorchProgramManager:
    """All methods share one arena; inputs and outputs live where the runtime says, outside of it.

    The graphs of `methods` become edge dialect in place. They have custom ops only, which nothing decomposes; `to_edge`
    runs each graph some twenty times to find that out, and makes the same program in ten times the time.
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
                raise ValueError(f"method {name}: {op} is no op of mobile_ft, and needs decomposition")
            packet = getattr(exir_ops.edge.mobile_ft, op._opname)
            node.target = getattr(packet, op._overloadname)
