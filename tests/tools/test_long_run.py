"""A long run holds at its end what it held at its beginning, but for a few bytes a step that its plan counts."""

from pathlib import Path
from typing import Any

import pytest
from long_run import EVERY, LongRun, long_run

STEP = 20  # bytes of memory: 12 in vectors that grow by doubling
VALIDATION = 400  # in memory and in the checkpoint
PAGES = 200_000  # that the heap may take once more


def check(run: LongRun, steps: int) -> None:
    first, last = run.samples[0], run.samples[-1]
    assert last.step == steps - EVERY // 2 and len(run.samples) == steps // EVERY - 1
    more, validations = last.step - first.step, len(run.samples)
    assert {sample.files for sample in run.samples} == {first.files}
    assert (last.anon_mb - first.anon_mb) * 1e6 < more * STEP + validations * VALIDATION + PAGES
    assert 8 * more <= last.disk_bytes - first.disk_bytes < 8 * more + validations * VALIDATION
    assert run.done["peak_anon_mb"] <= run.plan["planned_anon_mb"]


def test_two_thousand_steps(tmp_path: Path) -> None:
    check(long_run(tmp_path, {"steps": 2000}), 2000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "dropbp", "ratio": 0.5, "grad_accum": 2, "optimizer": "adamw8bit"},
        {"schedule": "freeze", "ratio": 0.5, "cache_prefix": "true", "max_grad_norm": 0},
    ],
    ids=["full", "dropbp", "freeze"],
)
def test_twenty_thousand_steps(options: dict[str, Any], tmp_path: Path) -> None:
    check(long_run(tmp_path, {"steps": 20000} | options), 20000)
