"""A device with a shell for tools/phone_check.py: a phone by adb, or a Mac."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from checked_device import Heat, MemoryTool, OnEvent

from mobile_ft.api.device_link import Device
from mobile_ft.api.device_pack import OUT, RUN_SCRIPT, Platform, pack_for_device
from mobile_ft.api.native import run_command
from mobile_ft.errors import UserError

PID = "pid"  # the file with the process id of the last run


@dataclass(frozen=True)
class ShellDevice:
    device: Device
    readings: ModuleType  # phone_readings or mac_readings
    platform: Platform
    runtime: Path | None
    notes: str = ""
    late_steps: int = 0

    @property
    def memory_tool(self) -> MemoryTool:
        read = self.readings.memory
        return MemoryTool(self.readings.MEMORY_TOOL, self.readings.MEMORY_TOTAL, lambda: read(self.device, PID))

    def clear(self) -> None:
        Device(self.device.kind, self.device.name, "/").output(f"rm -rf {self.device.folder}")

    def install(self, bundle: Path, text: Path, pack: Path, options: dict[str, Any]) -> None:
        pack_for_device(bundle, text, pack, platform=self.platform, runtime=self.runtime, **options)
        self.device.push(pack, sorted(path.name for path in pack.iterdir()))

    def train(self, options: Sequence[str], fresh: bool, on_event: OnEvent) -> None:
        # The runtime's cache is also in the folder. The shell executes mft-run, which keeps its process id.
        start = f"export XDG_CACHE_HOME=$PWD && echo $$ > {PID} && exec sh {RUN_SCRIPT} {shlex.join(options)}"
        run_command(self.device.command(f"rm -rf {OUT} && {start}" if fresh else start), on_event)

    def signal(self, name: str) -> None:
        self.device.output(f"kill -{name} $(cat {PID})")

    def facts(self) -> dict[str, str]:
        found: dict[str, str] = self.readings.device_facts(self.device)
        return found

    def heat(self) -> Heat:
        now: Heat = self.readings.heat(self.device)
        return now

    def core_count(self) -> int:
        found: int = self.readings.core_count(self.device)
        return found

    def answers(self) -> bool:
        try:
            self.device.output("true")
        except UserError:
            return False
        return True

    def __str__(self) -> str:
        return str(self.device)
