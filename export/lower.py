"""Lowers traced methods to one ExecuTorch program."""

from math import prod

from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, ExecutorchProgramManager, schema, to_edge
from executorch.exir.passes import MemoryPlanningPass

from mobile_ft.export.trace import Method


def lower(methods: dict[str, Method]) -> ExecutorchProgramManager:
    """All methods share one arena; inputs and outputs live where the runtime says, outside of it."""
    programs = {name: method.program for name, method in methods.items()}
    edge = to_edge(programs, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))


def arena_tensors(program: ExecutorchProgramManager) -> dict[str, list[list[int]]]:
    """[offset, bytes] of every tensor in the arena, for each method, at the most tokens that the method takes.

    A shorter call uses the beginning of each tensor, in proportion; so the memory planner knows which pages it touches.
    """
    return {
        plan.name: sorted(
            [info.memory_offset_low + (info.memory_offset_high << 32), _tensor_bytes(value.val)]
            for value in plan.values
            if isinstance(value.val, schema.Tensor) and (info := value.val.allocation_info) is not None
        )
        for plan in program.executorch_program.execution_plan
    }


def _tensor_bytes(tensor: schema.Tensor) -> int:
    item = {schema.ScalarType.FLOAT: 4, schema.ScalarType.BYTE: 1, schema.ScalarType.LONG: 8}[tensor.scalar_type]
    return item * prod(tensor.sizes)
