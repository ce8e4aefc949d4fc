"""Recordings: every planned block of memory is accounted for."""

from pathlib import Path

import pytest

from mobile_ft.errors import UserError
from mobile_ft.profile.recording import Call, Recording, read_buffers, read_calls
from mobile_ft.profile.sampler import Buffer, Sample


def test_a_component_that_nobody_watched_is_an_error_and_not_zero() -> None:
    components = {
        "code": 1.0,
        "weights_window": 2.0,
        "resident_weights": 0.0,
        "heap": 1.0,
        "arena": 3.0,
        "checkpoints": 0.0,
    }
    sample = Sample(
        time=0.0, anon=5_000_000, file=2_000_000, weights=1_000_000, program=0, buffers=(3_000_000,), limited=0
    )
    recording = Recording({"components_mb": components}, [Buffer("arena", 0, 3_000_000)], [sample])
    assert recording.measured_mb() == {"code": 1.0, "weights": 1.0, "heap": 2.0, "arena": 3.0, "checkpoints": 0.0}
    recording.plan["components_mb"]["checkpoints"] = 0.5
    with pytest.raises(ValueError, match="the trace has no buffers for these components of the plan: checkpoints"):
        recording.measured_mb()
    del recording.plan["components_mb"]["resident_weights"]
    with pytest.raises(KeyError):
        recording.planned_mb()


TRACE = """{"buffer": "arena", "address": 4096, "bytes": 8192}
{"unit": "layers.0.attn", "method": "attn_forward", "begin": 1, "end": 2.5}
"""


def test_traces(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    assert read_buffers(trace) == []
    trace.write_text(TRACE + '{"unit": "half')
    assert read_buffers(trace) == [Buffer("arena", 4096, 8192)]
    assert read_calls(trace) == [Call("layers.0.attn", "attn_forward", 1, 2.5)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "Expecting value"),
        ("[" * 100_000, "brackets nested deeper"),
        ("3", "argument of type 'int'"),
        ("\xff", "Expecting value"),
        ('{"unit": "a"}', "'method'"),
        ('{"unit": "a", "method": 3}', "3 is not a valid str"),
        ('{"unit": "a", "method": "b", "begin": NaN, "end": 1}', "nan is not a valid float"),
        ('{"unit": "a", "method": "b", "begin": true, "end": 1}', "True is not a valid float"),
        ('{"buffer": "a", "address": 1.5, "bytes": 1}', "1.5 is not a valid int"),
        ('{"buffer": "a", "address": 9223372036854775808, "bytes": 1}', "9223372036854775808 is not a valid int"),
        ('{"buffer": "a", "address": 1, "bytes": -1}', "-1 is not a valid int"),
    ],
)
def test_lines_that_are_none_of_a_trace(tmp_path: Path, line: str, message: str) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE + line + "\n")
    with pytest.raises(UserError) as error:
        read_buffers(trace), read_calls(trace)
    assert str(error.value).startswith(f"{trace}:3: not a valid line of a trace (") and message in str(error.value)
