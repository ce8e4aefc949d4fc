"""What tools/phone_check.py needs of a device under test. `ShellDevice` and `IPhone` implement it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mobile_ft.api.native import Event

UNKNOWN = "unknown"
OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Heat:
    """Temperatures in °C, the highest of each kind, or None if the device does not report them."""

    status: str
    skin: float | None
    cpu: float | None
    battery: float | None
    battery_percent: int | None
    powered: str  # the power source, such as USB; "": the battery


@dataclass(frozen=True)
class MemoryTool:
    """A program of the system that measures the memory of the current run."""

    name: str
    total: str  # the name of the total among the figures
    read: Callable[[], dict[str, float]]  # figures in MB; {} if the run has ended


class CheckedDevice(Protocol):
    """A device with a folder for the check. All methods raise UserError if the device cannot be reached."""

    @property
    def memory_tool(self) -> MemoryTool | None:
        """None if only the runtime measures memory."""

    @property
    def notes(self) -> str:
        """Sentences for the head of the report."""

    @property
    def late_steps(self) -> int:
        """The number of steps that a run may make before a signal reaches it."""

    def clear(self) -> None:
        """Removes the files of an earlier check from the device."""

    def install(self, bundle: Path, text: Path, pack: Path, options: dict[str, Any]) -> None:
        """Copies the bundle, the text's tokens and what else is needed to the device, for trainings with these options.
        Writes the tokens to `pack`/train.tokens, too."""

    def train(self, options: Sequence[str], fresh: bool, on_event: OnEvent) -> None:
        """Trains. With `fresh` false, resumes the last run. Raises UserError with the reason if the run fails."""

    def signal(self, name: str) -> None:
        """Sends a signal, such as "TERM", to the current run."""

    def facts(self) -> dict[str, str]: ...

    def heat(self) -> Heat: ...

    def core_count(self) -> int: ...

    def answers(self) -> bool:
        """Whether the device can be reached."""
