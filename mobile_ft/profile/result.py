"""Compares planned and measured memory of a recorded run."""

from statistics import median
from typing import Any

from mobile_ft.profile.limit import Limit
from mobile_ft.profile.recording import Recording

_COUNTS = ("stored", "units", "checkpoints", "offloaded", "resident_units")


def result_fields(recording: Recording, limit: Limit, budget_mb: float | None, survived: bool) -> dict[str, Any]:
    """Returns the fields of ProfileResult. Sizes are in MB of 10^6 bytes, times in seconds.

    The value of a component is its maximum over all samples. Totals are the kernel's own peaks.
    """
    plan = recording.plan
    seconds = [step.end - step.begin for step in recording.steps]
    weights, program = recording.sampled_peak_mb("weights"), recording.sampled_peak_mb("program")
    mapped = max((sample.file - sample.weights - sample.program for sample in recording.samples), default=0) / 1e6
    return {
        "planned_mb": recording.planned_mb(),
        "measured_mb": recording.measured_mb(),
        "planned_total_mb": plan["planned_mb"],
        "planned_anon_mb": plan["planned_anon_mb"],
        "peak_rss_mb": recording.peak_rss_mb(),
        "peak_anon_mb": recording.peak_anon_mb(),
        "files_mb": {"weights.ptd": weights, "program.pte": program, "others": mapped},
        "budget_mb": budget_mb,
        "enforced_by": limit.enforced_by,
        "cgroup_peak_mb": recording.sampled_peak_mb("limited") or None,
        "survived": survived,
        "steps": len(recording.steps),
        "step_seconds_median": median(seconds) if seconds else None,
        "samples": len(recording.samples),
    } | {name: plan[name] for name in _COUNTS}
