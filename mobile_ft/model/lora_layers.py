"""The linear layers that LoRA can adapt: their targets, PEFT's names for them, and the shapes of A and B."""

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import Family
from mobile_ft.model.shapes import expert_matrices, linear_shapes, unit_types

Shape = tuple[int, int]
EXPERTS = "experts"  # the target that is both matrices of all experts


def adaptable_shapes(config: ModelConfig, layer: int) -> dict[str, tuple[int, int]]:
    """Returns {name within the layer: (in, out)} of the linear layers that LoRA can adapt: all but routers."""
    family, units = config.family, unit_types(config, layer)
    frozen = [family.linears.get(role) for role in (*family.frozen, "router")]
    shapes = {name: shape for unit in units for name, shape in linear_shapes(config, layer, unit).items()}
    return {name: shape for name, shape in shapes.items() if name not in frozen}


def lora_target(family: Family, name: str) -> str:
    """Returns LoRA's target that has a linear layer: the last part of its name, such as `q_proj`, or `experts` for
    their matrices."""
    return EXPERTS if name in expert_matrices(family) else name.split(".")[-1]


def lora_targets(config: ModelConfig) -> tuple[str, ...]:
    """Returns all targets that LoRA can have."""
    names = [name for layer in range(config.num_hidden_layers) for name in adaptable_shapes(config, layer)]
    return tuple(dict.fromkeys(lora_target(config.family, name) for name in names))


def linear_names(config: ModelConfig) -> tuple[str, ...]:
    """Returns the targets that are linear layers of their own, which PEFT calls `all-linear`: all but experts."""
    return tuple(target for target in lora_targets(config) if target != EXPERTS)


def lora_module(family: Family, name: str) -> str:
    """Returns PEFT's module within the layer that has the LoRA of a linear layer. Experts are parameters of one module:
    PEFT wraps that module once for each."""
    matrices = expert_matrices(family)
    if name not in matrices:
        return name
    module = name.rpartition(".")[0]
    return f"{module}.base_layer" if name == matrices[0] else module


def lora_shapes(
    rank: int, in_features: int, out_features: int, experts: int = 1
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the shapes of A and B. Those of experts are together, as in PEFT's files: A [experts rank, in] is expert
    by expert, and the columns of B [rows of an expert, rank experts] alternate between experts."""
    return (experts * rank, in_features), (out_features // experts, rank * experts)
