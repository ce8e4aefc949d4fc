"""Reads facts of an Android phone for tools/phone_check.py: the device, its heat, the memory of a process."""

import re
from collections import Counter

from checked_device import UNKNOWN, Heat

from mobile_ft.api.device_link import Device

STATUS = ["none", "light", "moderate", "severe", "critical", "emergency", "shutdown"]  # levels of throttling
CPU, SKIN = 0, 3  # types of temperatures
MEMORY_TOOL, MEMORY_TOTAL = "dumpsys meminfo", "TOTAL PSS"
CORES = (
    "for core in /sys/devices/system/cpu/cpu[0-9]*; do"
    ' echo "$(cat $core/cpufreq/cpuinfo_max_freq 2>/dev/null)/$(cat $core/cpu_capacity 2>/dev/null)"; done'
)


def ask(device: Device, script: str) -> str:
    return device.output(script).decode(errors="replace").strip()


def device_facts(device: Device) -> dict[str, str]:
    properties = dict(re.findall(r"^\[(.+?)\]: \[(.*)\]", ask(device, "getprop"), re.MULTILINE))

    def of(*names: str) -> str:
        return " ".join(filter(None, (properties.get(name) for name in names))) or UNKNOWN

    kilobytes = _integer(r"MemTotal:\s+(\d+)", ask(device, "cat /proc/meminfo"))
    return {
        "model": of("ro.product.manufacturer", "ro.product.model"),
        "SoC": of("ro.soc.manufacturer", "ro.soc.model"),
        "platform": of("ro.board.platform"),
        "Android": f"{of('ro.build.version.release')}, SDK {of('ro.build.version.sdk')}",
        "kernel": ask(device, "uname -r") or UNKNOWN,
        "page size": ask(device, "getconf PAGE_SIZE") or UNKNOWN,
        "memory": UNKNOWN if kilobytes is None else f"{kilobytes * 1024 / 1e6:.0f} MB",
        "cores": _in_words(cores(device)),
    }


def cores(device: Device) -> list[str]:
    """Returns "FREQUENCY/CAPACITY" of each core, with its highest frequency in kHz. Either may be missing."""
    return ask(device, CORES).split()


def core_count(device: Device) -> int:
    return len(cores(device))


def _in_words(found: list[str]) -> str:
    parts = []
    for core, count in Counter(found).items():
        frequency, _, capacity = core.partition("/")
        speed = f"{int(frequency) / 1e6:.2f} GHz" if frequency.isdigit() else f"{UNKNOWN} GHz"
        parts.append(f"{count} of {speed}, capacity {capacity or UNKNOWN}")
    return "; ".join(parts) or UNKNOWN


def heat(device: Device) -> Heat:
    thermal = ask(device, "dumpsys thermalservice")
    _, current, text = thermal.partition("Current temperatures from HAL")
    found = re.findall(r"mValue=(-?[\d.]+), mType=(\d+)", text.partition("cooling")[0] if current else thermal)
    hottest = {CPU: None, SKIN: None} | {int(kind): max(float(v) for v, k in found if k == kind) for _, kind in found}
    status = _integer(r"Thermal Status: (\d+)", thermal)
    battery = ask(device, "dumpsys battery")
    tenths = _integer(r"^\s*temperature: (-?\d+)", battery)
    return Heat(
        status=UNKNOWN if status is None else STATUS[min(status, len(STATUS) - 1)],
        skin=hottest[SKIN],
        cpu=hottest[CPU],
        battery=None if tenths is None else tenths / 10,
        battery_percent=_integer(r"^\s*level: (\d+)", battery),
        powered=", ".join(re.findall(r"^\s*(\w+) powered: true", battery, re.MULTILINE)),
    )


def memory(device: Device, pid_file: str) -> dict[str, float]:
    """Returns `TOTAL PSS` in MB, and its parts, of the process whose id is in `pid_file`, or {} if it has ended."""
    text = ask(device, f"dumpsys meminfo $(cat {pid_file})").partition("App Summary")[2]
    rows = re.findall(r"^ *([A-Z][A-Za-z ]+?): +(\d+)", text, re.MULTILINE)
    found = {name: int(kilobytes) * 1024 / 1e6 for name, kilobytes in rows}
    if "TOTAL" in found:  # before Android 12
        found["TOTAL PSS"] = found.pop("TOTAL")
    return found


def _integer(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None
