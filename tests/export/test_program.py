"""What lowering leaves of the traced methods: the custom ops and next to nothing else."""

import itertools

import pytest

from mobile_ft.config import ModelConfig
from mobile_ft.export.lower import lower
from mobile_ft.export.trace import end_methods, unit_methods
from mobile_ft.units import UNIT_NORMS, Linear, UnitSpec, linear_shapes

CONFIG = ModelConfig("tiny", 64, 96, 1, 4, 2, 16, 250, 1e-5, 1e4, 512, True)


@pytest.fixture(scope="module")
def operators() -> dict[str, list[str]]:
    """Operators each method calls, with repetition."""
    methods = end_methods(CONFIG, "q8_0", "q8_0", 64)
    for unit_type, norm in UNIT_NORMS.items():
        linears = tuple(Linear(n, i, o, "q4_1", True) for n, (i, o) in linear_shapes(CONFIG, unit_type).items())
        methods |= unit_methods(UnitSpec(unit_type, unit_type, norm, linears, 4, 2.0, CONFIG), 64).methods
    program = lower(methods)._emitter_output.program
    return {
        plan.name: [
            plan.operators[call.instr_args.op_index].name
            for call in itertools.chain.from_iterable(chain.instructions for chain in plan.chains)
            if hasattr(call.instr_args, "op_index")
        ]
        for plan in program.execution_plan
    }


def test_methods(operators: dict[str, list[str]]) -> None:
    unit = ("forward", "forward_save", "backward", "backward_recompute")
    units = {f"{kind}_{method}" for kind in ("attn", "mlp") for method in unit}
    assert set(operators) == units | {"attn_decode", "embed", "head", "head_loss", "logits"}


def test_only_custom_ops(operators: dict[str, list[str]]) -> None:
    for name, calls in operators.items():
        assert [call for call in calls if not call.startswith("mobile_ft::")] == [], name
        # The residual, and a norm's output feeding two or three linears.
        most = {"attn": 3, "mlp": 2}[name.split("_")[0]] if "backward" in name else 1
        assert calls.count("mobile_ft::add") <= most, name


def test_backward_recomputes_no_more_than_it_needs(operators: dict[str, list[str]]) -> None:
    attention, mlp = operators["attn_backward_recompute"], operators["mlp_backward_recompute"]
    assert attention.count("mobile_ft::linear_q4") == 3  # q, k, v; the output projection is not needed again
    assert mlp.count("mobile_ft::linear_q4") == 2
    assert operators["attn_backward"].count("mobile_ft::linear_q4") == 0
    assert operators["mlp_backward"].count("mobile_ft::linear_q4") == 0
    assert operators["attn_forward_save"] == operators["attn_forward"]
    assert attention.count("mobile_ft::attention") == attention.count("mobile_ft::attention_backward") == 1
