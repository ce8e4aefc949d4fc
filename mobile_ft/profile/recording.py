"""The recording of a run: its plan, memory samples, method calls and steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mobile_ft.errors import UserError
from mobile_ft.files.json_text import parse_json
from mobile_ft.profile.sampler import Buffer, Sample

# Components of the plan that are pages of weights.ptd. Measurements cannot distinguish them.
_WEIGHTS = ("weights_window", "resident_weights")


class Call(NamedTuple):
    """A call of a method. Times are seconds of the monotonic clock."""

    unit: str
    method: str
    begin: float
    end: float

    @property
    def phase(self) -> str:
        if self.method == "head":
            return "head"
        return "backward" if "_backward" in self.method else "forward"


class Step(NamedTuple):
    number: int
    begin: float
    end: float


@dataclass
class Recording:
    """A recorded run. `plan` and `done` are mft-run's events; `done` is empty if the run did not finish."""

    plan: dict[str, Any]
    buffers: Sequence[Buffer] = ()
    samples: list[Sample] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    done: dict[str, Any] = field(default_factory=dict)

    def planned_mb(self) -> dict[str, float]:
        """Planned memory by component, in the order of the chart: pages of files, then anonymous memory."""
        sizes = dict(self.plan["components_mb"])
        weights = sum(sizes.pop(name) for name in _WEIGHTS)
        return {"code": sizes.pop("code"), "weights": weights} | sizes

    def series_mb(self) -> dict[str, NDArray[np.float64]]:
        """Returns the resident MB of each component of `planned_mb`, for each sample.

        Raises ValueError if the trace has no buffer for a planned component.
        """
        samples = self.samples
        weights = _megabytes([s.weights for s in samples])
        buffers = {b.name: _megabytes([s.buffers[i] for s in samples]) for i, b in enumerate(self.buffers)}
        heap = _megabytes([max(0, s.anon - sum(s.buffers)) for s in samples])
        code = _megabytes([max(0, s.file - s.weights) for s in samples])
        known = {"code": code, "weights": weights, "heap": heap} | buffers
        planned = self.planned_mb()
        unknown = [name for name, size in planned.items() if size > 0 and name not in known]
        if unknown and samples:
            raise ValueError(f"the trace has no buffers for these components of the plan: {', '.join(unknown)}")
        return {name: known.get(name, np.zeros(len(samples))) for name in planned}

    def measured_mb(self) -> dict[str, float]:
        """Returns the maximum of each component over all samples."""
        return {name: float(values.max(initial=0)) for name, values in self.series_mb().items()}

    def sampled_peak_mb(self, field: str) -> float:
        return max((getattr(sample, field) for sample in self.samples), default=0) / 1e6

    def peak_rss_mb(self) -> float:
        """The kernel's own peak, or the peak of the samples if the process was killed."""
        sampled = max((sample.anon + sample.file for sample in self.samples), default=0) / 1e6
        return float(max(sampled, self.done.get("peak_rss_mb", 0)))

    def peak_anon_mb(self) -> float:
        """The same for anonymous memory. mft-run reads it after each step."""
        return float(max(self.sampled_peak_mb("anon"), self.done.get("peak_anon_mb", 0)))


def _megabytes(sizes: list[int]) -> NDArray[np.float64]:
    return np.array(sizes, np.float64) / 1e6


def read_buffers(trace: Path) -> list[Buffer]:
    """Reads the buffers at the beginning of mft-run's trace. Raises UserError if a line is malformed."""
    return [Buffer(*values) for values in _lines(trace, {"buffer": str, "address": int, "bytes": int})]


def read_calls(trace: Path) -> list[Call]:
    return [Call(*values) for values in _lines(trace, {"unit": str, "method": str, "begin": float, "end": float})]


def _lines(trace: Path, fields: dict[str, type]) -> list[list[Any]]:
    """Returns the values of lines that have the first of these fields. Ignores an incomplete last line, which a process
    leaves when it is killed.
    """
    if not trace.exists():
        return []
    first, found = next(iter(fields)), []
    with trace.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                continue
            try:
                values = parse_json(line.decode())
                if first in values:
                    found.append([_typed(values[name], kind) for name, kind in fields.items()])
            except (ValueError, TypeError, KeyError) as error:
                raise UserError(f"{trace}:{number}: not a valid line of a trace ({error})") from error
    return found


def _typed(value: Any, kind: type) -> Any:
    """Checks a value's type. Numbers are addresses, sizes or seconds, so they are not negative."""
    if kind is str and isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 63
    if kind is float and number or kind is int and number and isinstance(value, int):
        return value
    raise TypeError(f"{value!r} is not a valid {kind.__name__}")
