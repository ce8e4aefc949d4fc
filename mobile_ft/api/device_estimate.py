"""Estimates the time and energy of a step on a device from its cores, their clocks and its storage.

`devices.json` has, for each device: its big cores, which training uses, with their highest clock and the power of one
core at that clock (public measurements, which differ by half); the practical read speed of its storage (half of the
advertised speed, and a memory card on a Raspberry Pi); its battery; and the power that its case can dissipate.
`multiply_adds` is the number of float32 multiply-adds of a core per cycle. docs/reference/devices.md has the formulas.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mobile_ft.api.options import did_you_mean
from mobile_ft.errors import UserError

_FILE = Path(__file__).with_name("devices.json")
# Multiply-adds of bytes per multiply-add of float32, by instruction set.
_BYTES = {"dotprod": 4, "i8mm": 8}
# Fractions of the float32 peak that the kernels reach, measured on x86 (Zen 4); for GEMM also estimated with llvm-mca
# on ARM (docs/kernel_analysis.md). Rounding and LoRA compute in float32 even with int8, and take the time of this many
# multiply-adds per multiply-add of the weights.
_GEMM = 0.8
_BESIDE_INT8 = 0.19
_ATTENTION = 0.5
_DECODED = 0.04  # weights per operation
_ELEMENTS = 0.02  # elements per operation
_REST_W = 1.0  # memory and everything else
# Power grows with clock and voltage, so throttling reduces power by more than it reduces speed.
_SPEED_OF_POWER = 0.4


@dataclass(frozen=True)
class DeviceEstimate:
    """A device with a number of threads: its throughput for the planner, and the estimates for a planned step."""

    name: str
    chip: str
    threads: int
    compute: str  # "int8" or "float32"
    arithmetic: str  # such as int8-i8mm
    throughput: tuple[int, ...]  # as `mft-run plan --throughput` takes them
    watts: float  # at the highest clocks
    sustained_w: float | None  # None: the device never throttles
    battery_wh: float | None

    def of_step(self, seconds: float) -> dict[str, Any]:
        """Returns the estimates for a step that takes `seconds` at the highest clocks. The device is hot after some
        minutes."""
        hot = max(1.0, self.watts / self.sustained_w) if self.sustained_w else 1.0
        hot_seconds = seconds * hot**_SPEED_OF_POWER
        joules = self.watts / hot * hot_seconds
        battery = 100 * joules / (self.battery_wh * 3600) if self.battery_wh else None
        return {
            "name": self.name,
            "chip": self.chip,
            "threads": self.threads,
            "hot_step_seconds": hot_seconds,
            "joules": joules,
            "battery_percent": battery,
        }


def known_devices() -> list[str]:
    """Returns the names of the devices with estimates."""
    return sorted(_table()["devices"])


def estimate_device(name: str, options: Mapping[str, str]) -> DeviceEstimate:
    """Returns the estimate of a device for these training options.

    The default of `threads` is one per big core, and that of `compute` the faster one on the device. Raises UserError
    for an unknown device.
    """
    table = _table()
    if name not in table["devices"]:
        raise UserError(f"device {name}: unknown device{did_you_mean(name, known_devices())}")
    device = table["devices"][name]
    kinds = [table["cores"][group["core"]] | group for group in device["cores"] for _ in range(group["count"])]
    threads = min(int(options.get("threads", "0")) or len(kinds), len(kinds))
    used = kinds[:threads]  # fastest first
    isa = used[0]["arithmetic"]
    compute = options.get("compute", "auto")
    if compute == "auto":
        compute = "int8" if isa in _BYTES else "float32"
    peak = sum(2e9 * core["ghz"] * core["multiply_adds"] for core in used)  # operations
    linear = _GEMM * peak
    if compute == "int8":
        linear = peak / (1 / (_GEMM * _BYTES.get(isa, 1)) + _BESIDE_INT8)
    throughput = linear, _ATTENTION * peak, _DECODED * peak, _ELEMENTS * peak, device["read_gb_s"] * 1e9
    return DeviceEstimate(
        name,
        device["chip"],
        threads,
        compute,
        f"{compute}-{isa}",
        tuple(round(rate) for rate in throughput),
        sum(core["w"] for core in used) + _REST_W,
        device["sustained_w"],
        device["battery_wh"],
    )


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_FILE.read_text())
    return table
