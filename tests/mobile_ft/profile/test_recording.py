"""Recordings: every planned block of memory is accounted for."""

import pytest

from mobile_ft.profile.recording import Buffer, Recording
from mobile_ft.profile.sampler import Sample


def test_a_component_that_nobody_watched_is_an_error_and_not_zero() -> None:
    components = {
        "code": 1.0,
        "weights_window": 2.0,
        "resident_weights": 0.0,
        "heap": 1.0,
        "arena": 3.0,
        "staging": 0.0,
    }
    sample = Sample(
        time=0.0, anon=5_000_000, file=2_000_000, weights=1_000_000, program=0, buffers=[3_000_000], limited=0
    )
    recording = Recording({"components_mb": components}, [Buffer("arena", 0, 3_000_000)], [sample])
    assert recording.measured_mb() == {"code": 1.0, "weights": 1.0, "heap": 2.0, "arena": 3.0, "staging": 0.0}
    recording.plan["components_mb"]["staging"] = 0.5
    with pytest.raises(ValueError, match="the plan's staging: no such block of memory in the trace"):
        recording.measured_mb()
    del recording.plan["components_mb"]["resident_weights"]
    with pytest.raises(KeyError):
        recording.planned_mb()
