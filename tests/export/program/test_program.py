"""What lowering leaves of the traced methods: the custom ops and next to nothing else."""

import dataclasses
import itertools
from functools import cache
from io import BytesIO
from typing import NamedTuple

import pytest
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, ExecutorchProgramManager, to_edge
from executorch.exir.passes import MemoryPlanningPass

from mobile_ft.export.program.lower import lower
from mobile_ft.export.program.trace import Method, end_methods, unit_methods
from mobile_ft.model.config import ModelConfig
from mobile_ft.model.families import SLIDING
from mobile_ft.model.lora import LoraConfig
from mobile_ft.model.lora_layers import linear_names
from mobile_ft.model.unit_spec import UnitSpec, unit_spec

LLAMA = ModelConfig("tiny", 64, 96, 1, 4, 2, 16, 250, 1e-5, 1e4, 512, True)
QWEN = dataclasses.replace(LLAMA, model_type="qwen2")
GEMMA = dataclasses.replace(LLAMA, model_type="gemma3_text", layer_types=(SLIDING,), sliding_window=8)


class Q41(NamedTuple):
    """Any model, in one format."""

    config: ModelConfig

    def format_of(self, name: str) -> str:
        return "q4_1"


def spec_of(config: ModelConfig, unit_type: str, activation: str = "exact") -> UnitSpec:
    lora = LoraConfig(4, 8.0, linear_names(config))
    return dataclasses.replace(unit_spec(Q41(config), 0, unit_type, lora, activation), kind=unit_type)


@cache
def lowered(config: ModelConfig) -> dict[str, list[str]]:
    """Operators each method calls, with repetition."""
    methods = end_methods(config, "q8_0", "q8_0", 64)
    for unit_type in ("attn", "mlp"):
        methods |= unit_methods(spec_of(config, unit_type), 64).methods
    program = lower(methods)._emitter_output.program
    return {
        plan.name: [
            plan.operators[call.instr_args.op_index].name
            for call in itertools.chain.from_iterable(chain.instructions for chain in plan.chains)
            if hasattr(call.instr_args, "op_index")
        ]
        for plan in program.execution_plan
    }


@pytest.fixture(scope="module")
def operators() -> dict[str, list[str]]:
    return lowered(LLAMA)


def test_methods(operators: dict[str, list[str]]) -> None:
    unit = ("forward", "forward_save", "backward", "backward_recompute")
    units = {f"{kind}_{method}" for kind in ("attn", "mlp") for method in unit}
    assert set(operators) == units | {"attn_decode", "embed", "head", "head_loss", "logits"}


def file_of(program: ExecutorchProgramManager) -> bytes:
    file = BytesIO()
    program.write_to_file(file)
    return file.getvalue()


def test_the_program_is_what_to_edge_makes() -> None:
    methods = unit_methods(spec_of(GEMMA, "mlp"), 64).methods | end_methods(GEMMA, "q8_0", "q8_0", 64)
    programs = {name: method.program for name, method in methods.items()}
    edge = to_edge(programs, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    expected = file_of(edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)))
    assert file_of(lower(methods)) == expected


def test_ops_that_need_decomposition_are_refused() -> None:
    program = torch.export.export(torch.nn.SiLU(), (torch.zeros(2),))
    with pytest.raises(ValueError, match="method f: aten.silu.default is not an op of mobile_ft"):
        lower({"f": Method(program, 2)})


@pytest.mark.parametrize("config", [LLAMA, QWEN, GEMMA], ids=lambda config: config.model_type)
def test_only_custom_ops(config: ModelConfig) -> None:
    for name, calls in lowered(config).items():
        assert [call for call in calls if not call.startswith("mobile_ft::")] == [], name
        # The residual, and a norm's output feeding two or three linears.
        most = {"attn": 3, "mlp": 2}[name.split("_")[0]] if "backward" in name else 1
        assert calls.count("mobile_ft::add") <= most, name


def test_biases_are_added_to_q_k_and_v() -> None:
    calls = lowered(QWEN)
    assert calls["attn_forward"].count("mobile_ft::add_bias") == calls["attn_decode"].count("mobile_ft::add_bias") == 3
    assert "mobile_ft::add_bias" not in calls["attn_backward"] + calls["mlp_forward"]


def test_gemma_has_more_norms() -> None:
    gemma = lowered(GEMMA)
    assert gemma["attn_forward"].count("mobile_ft::ms_rms_norm") == 2  # before and behind
    assert gemma["attn_forward"].count("mobile_ft::rms_norm") == 2  # of q and of k
    assert gemma["attn_backward_recompute"].count("mobile_ft::ms_rms_norm_backward") == 2
    assert gemma["attn_backward_recompute"].count("mobile_ft::rms_norm_backward") == 2
    assert gemma["mlp_forward"].count("mobile_ft::ms_rms_norm") == 2
    assert "mobile_ft::geglu" in gemma["mlp_forward"]


def test_backward_recomputes_no_more_than_it_needs(operators: dict[str, list[str]]) -> None:
    attention, mlp = operators["attn_backward_recompute"], operators["mlp_backward_recompute"]
    assert attention.count("mobile_ft::packed_linear") == 3  # q, k, v; the output projection is not needed again
    assert mlp.count("mobile_ft::packed_linear") == 2
    assert operators["attn_backward"].count("mobile_ft::packed_linear") == 0
    assert operators["mlp_backward"].count("mobile_ft::packed_linear") == 0
    assert operators["attn_forward_save"] == operators["attn_forward"]
    assert attention.count("mobile_ft::attention") == attention.count("mobile_ft::attention_backward") == 1


def test_seven_heads_are_not_taken_for_tokens() -> None:
    """The example that is traced has 7 tokens."""
    config = dataclasses.replace(GEMMA, num_attention_heads=7, num_key_value_heads=7, head_dim=32)
    saved = [tensor["shape"] for tensor in unit_methods(spec_of(config, "attn"), 64).kind.saved]
    assert [7, -1] in saved  # the log-sum-exp
    assert all(shape.count(-1) == 1 for shape in saved)


def test_queries_and_keys_are_saved_once() -> None:
    """Their norm and rope are computed again."""
    config = dataclasses.replace(GEMMA, num_attention_heads=7, num_key_value_heads=7, head_dim=32)
    saved = [tensor["shape"] for tensor in unit_methods(spec_of(config, "attn"), 64).kind.saved]
    assert saved.count([-1, 7 * 32]) == 4  # q, k, v and the output


@pytest.mark.parametrize("config", [LLAMA, QWEN, GEMMA], ids=lambda config: config.model_type)
def test_what_is_stored_in_how_many_bits(config: ModelConfig) -> None:
    """Queries [T, 64] and keys [T, 32] in 16 bits, one number a row or head in 32, the rest in 8."""
    z, q, k, v, o = (64, "int8"), (64, "float16"), (32, "float16"), (32, "int8"), (64, "int8")
    saved = unit_methods(spec_of(config, "attn", "int8"), 64).kind.saved
    stored = [(tensor["shape"][-1], tensor["stored"]) for tensor in saved if len(tensor["shape"]) == 2]
    stored.remove((-1, "float32"))  # the log-sum-exp of 4 heads
    # Queries and keys behind their rope, or where they have norms, before them.
    assert stored == ([z, q, k, v, o, z] if config is GEMMA else [z, v, q, k, o])
    assert all(tensor["stored"] == "float32" for tensor in saved if len(tensor["shape"]) == 1)
    mlp = unit_methods(spec_of(config, "mlp", "int8"), 64).kind.saved
    assert all(tensor["stored"] == ("int8" if len(tensor["shape"]) == 2 else "float32") for tensor in mlp)


def test_exact_activations_are_stored_as_they_are() -> None:
    for unit_type in ("attn", "mlp"):
        assert {tensor["stored"] for tensor in unit_methods(spec_of(LLAMA, unit_type), 64).kind.saved} == {"float32"}
