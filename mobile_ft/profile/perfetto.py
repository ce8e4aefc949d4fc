"""A recording in Chrome's trace format, which ui.perfetto.dev opens."""

from typing import Any

from mobile_ft.profile.recording import Recording

_TRACKS = {"step": 1, "forward": 2, "head": 3, "backward": 4}
_PROCESS = 1


def perfetto_trace(recording: Recording) -> dict[str, Any]:
    """Writes steps and methods as complete events, with one track per phase, and memory by component in MB as
    counters."""
    times = [call.begin for call in recording.calls] + [sample.time for sample in recording.samples]
    start = min(times, default=0.0)

    def microseconds(time: float) -> float:
        return round((time - start) * 1e6, 1)

    def complete(name: str, track: str, begin: float, end: float, **args: str) -> dict[str, Any]:
        place = {"pid": _PROCESS, "tid": _TRACKS[track], "cat": track}
        length = round((end - begin) * 1e6, 1)
        return {"ph": "X", "name": name, "ts": microseconds(begin), "dur": length, "args": args} | place

    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": "mobile-ft"}},
    ]
    for name, track in _TRACKS.items():
        events.append({"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": track, "args": {"name": name}})
        order = {"sort_index": track}
        events.append({"ph": "M", "name": "thread_sort_index", "pid": _PROCESS, "tid": track, "args": order})
    for step in recording.steps:
        events.append(complete(f"step {step.number}", "step", step.begin, step.end))
    for call in recording.calls:
        events.append(complete(call.unit, call.phase, call.begin, call.end, method=call.method))
    for name, values in recording.series_mb().items():
        if not values.any():
            continue
        for sample, value in zip(recording.samples, values, strict=True):
            counter = {"ph": "C", "name": name, "pid": _PROCESS, "ts": microseconds(sample.time)}
            events.append(counter | {"args": {"MB": round(float(value), 3)}})
    return {"displayTimeUnit": "ms", "traceEvents": events}
