"""What a step takes on a device that is not here, estimated from its cores, their clocks and its storage.

`devices.json` has each device's big cores, which training uses, at their highest clock with the power that one of them
takes there (public measurements, which differ by half), what its storage reads in practice (half of what it is sold
for, a memory card on a Raspberry Pi), its battery, and the power that its case gets rid of. `multiply_adds` are those
of float32 that a core does in a cycle. docs/reference/devices.md has the formulas.
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
# Multiply-adds of bytes for each of float32, by what a core has for them.
_BYTES = {"dotprod": 4, "i8mm": 8}
# Shares of the peak of float32 multiply-adds that kernels reach, as measured on x86 (Zen 4); those of GEMM by llvm-mca
# on ARM too (docs/kernel_analysis.md). Rounding and LoRA, which are float32 with int8 too, take the time of so many
# multiply-adds for each of the weights'.
_GEMM = 0.8
_BESIDE_INT8 = 0.19
_ATTENTION = 0.5
_DECODED = 0.04  # weights an operation
_ELEMENTS = 0.02  # numbers an operation
_REST_W = 1.0  # memory and all else
# Power grows with clock and voltage, so a chip that must give up some of it gives up less speed.
_SPEED_OF_POWER = 0.4


@dataclass(frozen=True)
class DeviceEstimate:
    """A device with so many of its threads: what the planner wants to know of it, and what follows from a plan."""

    name: str
    chip: str
    threads: int
    compute: str  # "int8" or "float32"
    arithmetic: str  # such as int8-i8mm
    throughput: tuple[int, ...]  # as `mft-run plan --throughput` takes them
    watts: float  # at the highest clocks
    sustained_w: float | None  # None: as long as it likes
    battery_wh: float | None

    def of_step(self, seconds: float) -> dict[str, Any]:
        """What a step of so many seconds at the highest clocks means. It is hot after some minutes."""
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
    """Names of the devices that can be estimated."""
    return sorted(_table()["devices"])


def estimate_device(name: str, options: Mapping[str, str]) -> DeviceEstimate:
    """The device as training with these options would use it: `threads`, else one for each big core; `compute`, else
    what is faster there. Raises UserError on an unknown device."""
    table = _table()
    if name not in table["devices"]:
        raise UserError(f"device {name}: not known{did_you_mean(name, known_devices())}")
    device = table["devices"][name]
    kinds = [table["cores"][group["core"]] | group for group in device["cores"] for _ in range(group["count"])]
    threads = min(int(options.get("threads", "0")) or len(kinds), len(kinds))
    used = kinds[:threads]  # the fastest come first
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
