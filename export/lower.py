"""Lowers traced methods to one ExecuTorch program."""

from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from executorch.exir.passes import MemoryPlanningPass

from mobile_ft.export.trace import Method


def lower(methods: dict[str, Method]) -> ExecutorchProgramManager:
    """All methods share one arena; inputs and outputs live where the runtime says, outside of it."""
    programs = {name: method.program for name, method in methods.items()}
    edge = to_edge(programs, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
