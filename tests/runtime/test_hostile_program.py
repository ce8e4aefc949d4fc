"""Programs that were made to do harm, with checksums that fit: refused in one line before they run.

Each changes one thing in what ExecuTorch's own serializer reads and writes.
"""

import copy
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from executorch.exir import schema
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from executorch.exir.schema import ExecutionPlan as Plan

from tests.runtime.native import events, failure


@pytest.fixture
def data(token_file: Callable[..., Path], tmp_path: Path) -> Path:
    return token_file(tmp_path / "tokens.safetensors", 250, 32, 5)


@pytest.fixture(scope="module")
def program(small_bundle: Path) -> schema.Program:
    return deserialize_pte_binary((small_bundle / "program.pte").read_bytes()).program


@pytest.fixture
def rewritten(small_bundle: Path, program: schema.Program, tmp_path: Path) -> Callable[..., Path]:
    def rewrite(method: str, change: Callable[[Plan], object]) -> Path:
        bundle = Path(shutil.copytree(small_bundle, tmp_path / "bundle"))
        file, index = bundle / "program.pte", bundle / "bundle.json"
        changed = copy.deepcopy(program)
        change(next(plan for plan in changed.execution_plan if plan.name == method))
        content = bytes(serialize_pte_binary(PTEFile(changed)))
        file.write_bytes(content)
        description = json.loads(index.read_text())
        description["checksums"]["program.pte"] = {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        index.write_text(json.dumps(description))
        return bundle

    return rewrite


def calls(plan: Plan) -> list[schema.KernelCall]:
    return [instruction.instr_args for instruction in plan.chains[0].instructions]


def in_arena(plan: Plan) -> list[schema.Tensor]:
    return [v.val for v in plan.values if isinstance(v.val, schema.Tensor) and v.val.allocation_info is not None]


def jump_to_itself(plan: Plan) -> None:
    condition = next(i for i, value in enumerate(plan.values) if isinstance(value.val, schema.Bool))
    plan.chains[0].instructions[0] = schema.Instruction(schema.JumpFalseCall(condition, 0))


def delegate(plan: Plan) -> None:
    reference = schema.BackendDelegateDataReference(schema.DataLocation.INLINE, 0)
    plan.delegates.append(schema.BackendDelegate("XnnpackBackend", reference, []))


def set_attribute(target: object, name: str, value: object) -> None:
    setattr(target, name, value)


HARM: dict[str, tuple[Callable[[Plan], object], str]] = {
    "op index": (lambda p: set_attribute(calls(p)[0], "op_index", 999), "calls op 999 of 6"),
    "negative op index": (lambda p: set_attribute(calls(p)[0], "op_index", -1), "calls op 4294967295 of 6"),
    "op of another library": (
        lambda p: p.operators.__setitem__(0, schema.Operator("aten::add", "out")),
        "calls aten::add.out, which this runtime does not support",
    ),
    "argument index": (lambda p: calls(p)[0].args.__setitem__(0, 5000), "refers to value 5000 of 57"),
    "too few arguments": (lambda p: calls(p)[0].args.pop(), "with 4 arguments"),
    "writes to weights": (
        lambda p: calls(p)[0].args.__setitem__(2, 2),
        "writes to a value that is not one of its own tensors",
    ),
    "writes to a number": (
        lambda p: calls(p)[0].args.__setitem__(2, calls(p)[0].args[1]),
        "writes to a value that is not one of its own tensors",
    ),
    "reads what nobody wrote": (
        lambda p: calls(p)[0].args.__setitem__(0, calls(p)[-1].args[-1]),
        "reads a tensor before it is written",
    ),
    "outside the arena": (
        lambda p: set_attribute(in_arena(p)[0].allocation_info, "memory_offset_low", 2**31 - 16),
        "has a tensor outside of the arena",
    ),
    "far outside the arena": (
        lambda p: set_attribute(in_arena(p)[0].allocation_info, "memory_offset_high", 2**31),
        "has a tensor outside of the arena",
    ),
    "other memory": (
        lambda p: set_attribute(in_arena(p)[0].allocation_info, "memory_id", 0),
        "has a tensor outside of the arena",
    ),
    "larger than the arena": (
        lambda p: p.non_const_buffer_sizes.__setitem__(1, 64),
        "has a tensor outside of the arena",
    ),
    "null data": (
        lambda p: set_attribute(in_arena(p)[0], "allocation_info", None),
        "has a tensor without arena allocation",
    ),
    "input in the arena": (
        lambda p: set_attribute(p.values[0].val, "allocation_info", in_arena(p)[0].allocation_info),
        "input or output in the arena",
    ),
    "indices that ops write": (
        lambda p: set_attribute(in_arena(p)[0], "scalar_type", schema.ScalarType.LONG),
        "computes integer tensors",
    ),
    "no bounds": (
        lambda p: set_attribute(in_arena(p)[0], "shape_dynamism", schema.TensorShapeDynamism.DYNAMIC_UNBOUND),
        "has a tensor without bounds",
    ),
    "negative size": (lambda p: in_arena(p)[0].sizes.__setitem__(0, -4), "has a tensor with an unsupported shape"),
    "data of its own": (
        lambda p: set_attribute(in_arena(p)[0], "data_buffer_idx", 1),
        "has a tensor with constant data",
    ),
    "jumps": (jump_to_itself, "has instructions other than calls of ops"),
    "delegate": (delegate, "has a delegate"),
    "the same input twice": (
        lambda p: p.inputs.__setitem__(1, p.inputs[0]),
        "has an input that is not a tensor or is repeated",
    ),
    "an input as output": (
        lambda p: p.outputs.__setitem__(0, p.inputs[0]),
        "has an output that is not a separate tensor",
    ),
    "no such input": (lambda p: p.inputs.__setitem__(0, 77), "refers to value 77 of 57"),
    "nothing computed": (lambda p: p.chains[0].instructions.clear(), "makes 0 calls"),
    "no chain": (lambda p: p.chains.clear(), "must have one chain of calls"),
}


@pytest.mark.parametrize("harm", HARM)
def test_refused(rewritten: Callable[..., Path], data: Path, harm: str) -> None:
    change, expected = HARM[harm]
    bundle = rewritten("attn_forward", change)
    message = failure("eval", bundle, "--data", data)
    assert f"{bundle}/program.pte: method attn_forward " in message and expected in message


def test_unchanged(rewritten: Callable[..., Path], data: Path) -> None:
    """What the serializer makes of an honest program runs."""
    assert events("eval", rewritten("attn_forward", lambda plan: None), "--data", data)


def test_no_write_past_an_output_buffer(rewritten: Callable[..., Path], data: Path) -> None:
    """The norm's result, 64 numbers a token, declared as one number a token, in place of the losses."""

    def swap(plan: Plan) -> None:
        normed, losses = calls(plan)[0].args[3], plan.outputs[0]
        place = plan.values[normed].val.allocation_info
        plan.values[normed].val.allocation_info, plan.values[losses].val.allocation_info = None, place
        plan.values[normed].val.sizes = [256 * 64, 1]
        plan.outputs[0] = normed

    assert "method head_loss failed" in failure("eval", rewritten("head_loss", swap), "--data", data)


@pytest.mark.parametrize("heads", [0, -4, 3, 2**62])
def test_impossible_heads(rewritten: Callable[..., Path], data: Path, heads: int) -> None:
    def change(plan: Plan) -> None:
        attention = next(call for call in calls(plan) if plan.operators[call.op_index].name == "mobile_ft::attention")
        plan.values[attention.args[4]].val.int_val = heads

    assert "method attn_forward failed" in failure("eval", rewritten("attn_forward", change), "--data", data)
