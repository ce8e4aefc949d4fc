"""Reads facts of a Mac for tools/phone_check.py, as phone_readings.py does of a phone."""

import re

from checked_device import UNKNOWN, Heat
from phone_readings import ask

from mobile_ft.api.device_link import Device

MEMORY_TOOL, MEMORY_TOTAL = "footprint", "footprint"
_UNITS = {"KB": 1e-3, "MB": 1.0, "GB": 1e3}


def device_facts(device: Device) -> dict[str, str]:
    def of(command: str) -> str:
        return ask(device, f"{command} 2>/dev/null || true") or UNKNOWN

    memory = of("sysctl -n hw.memsize")
    return {
        "model": of("sysctl -n hw.model"),
        "SoC": of("sysctl -n machdep.cpu.brand_string"),
        "macOS": of("sw_vers -productVersion"),
        "kernel": of("uname -r"),
        "page size": of("sysctl -n hw.pagesize"),
        "memory": f"{int(memory) / 1e6:.0f} MB" if memory.isdigit() else UNKNOWN,
        "cores": " + ".join(cores(device)) or UNKNOWN,
    }


def cores(device: Device) -> list[str]:
    """Returns the number of cores of each performance level, the fastest first."""
    names = " ".join(f"hw.perflevel{level}.physicalcpu" for level in range(3))
    return ask(device, f"for name in {names}; do sysctl -n $name 2>/dev/null; done; true").split()


def core_count(device: Device) -> int:
    return sum(map(int, cores(device)))


def heat(device: Device) -> Heat:
    """macOS gives no temperatures, but by how much it slows the CPU down."""
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", ask(device, "pmset -g therm"))
    battery = ask(device, "pmset -g batt")
    percent = re.search(r"(\d+)%", battery)
    source = re.search(r"drawing from '(.+?)'", battery)
    return Heat(
        status=f"CPU at {limit[1]} %" if limit else UNKNOWN,
        skin=None,
        cpu=None,
        battery=None,
        battery_percent=int(percent[1]) if percent else None,
        powered="" if source and source[1] == "Battery Power" else source[1] if source else UNKNOWN,
    )


def memory(device: Device, pid_file: str) -> dict[str, float]:
    """Returns the footprint in MB of the process whose id is in `pid_file`, or {} if it has ended."""
    found = re.search(r"Footprint: ([\d.]+) (KB|MB|GB)", ask(device, f"footprint $(cat {pid_file}) 2>/dev/null"))
    return {"footprint": float(found[1]) * _UNITS[found[2]]} if found else {}
