"""Writes a recording as one self-contained HTML file."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from mobile_ft.profile.recording import Call, Recording

_MOST_SAMPLES = 5000  # limit of the file; beyond it, the largest of every few samples is kept
_TEMPLATE = Path(__file__).with_name("report.html")


def html_report(recording: Recording, result: dict[str, Any]) -> str:
    """Returns the report. `result` has the fields of `mobile-ft profile --json`."""
    # "<" could end the script that holds the data.
    data = json.dumps(_data(recording, result), separators=(",", ":")).replace("<", "\\u003c")
    return _TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/", data)


def _data(recording: Recording, result: dict[str, Any]) -> dict[str, Any]:
    times = np.array([sample.time for sample in recording.samples])
    calls = _joined(recording.calls)
    start = min([*times[:1], *(call.begin for call in calls[:1])], default=0.0)
    series = recording.series_mb()
    kept = _kept(sum(series.values(), np.zeros(len(times))))
    units = list(dict.fromkeys(call.unit for call in calls))
    methods = list(dict.fromkeys(call.method for call in calls))
    return {
        "result": result,
        "anonymous": recording.plan["anonymous"],
        "times": np.round(times[kept] - start, 4).tolist(),
        "series": {name: np.round(values[kept], 2).tolist() for name, values in series.items()},
        "units": units,
        "methods": methods,
        "calls": [
            [units.index(c.unit), methods.index(c.method), c.phase, round(c.begin - start, 5), round(c.end - start, 5)]
            for c in calls
        ],
        "steps": [[s.number, round(s.begin - start, 4), round(s.end - start, 4)] for s in recording.steps],
    }


def _joined(calls: list[Call]) -> list[Call]:
    """Joins the calls of a method that was called in parts."""
    joined: list[Call] = []
    for call in calls:
        if joined and joined[-1][:2] == call[:2]:
            joined[-1] = joined[-1]._replace(end=call.end)
        else:
            joined.append(call)
    return joined


def _kept(totals: np.ndarray) -> np.ndarray:
    """Returns the indices of the samples to show: the largest of every few, so that no peak is lost."""
    few = -(-len(totals) // _MOST_SAMPLES) or 1
    return np.array([i + int(np.argmax(totals[i : i + few])) for i in range(0, len(totals), few)], np.int64)
