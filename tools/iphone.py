"""An iPhone for tools/phone_check.py. It has no shell: the demo app (apple/Demo), started with `--check`, trains and
prints events and readings. apple/Demo/Logic/Check.swift describes its arguments and lines. `devicectl` of Xcode copies
files, starts the app, passes its output on, and sends signals."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from checked_device import UNKNOWN, Heat, OnEvent

from mobile_ft.api.device_pack import OUT
from mobile_ft.api.native import Event, parse_event
from mobile_ft.api.options import native_arguments, option_texts, train_settings
from mobile_ft.api.tokens import prepare_tokens
from mobile_ft.bundle.description import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.runtime import train_options

APP = "ai.mobileft.demo"  # as in apple/Demo/project.yml
FOLDER = "Documents/check"  # in the app's container
BUNDLE, TOKENS = "bundle", "train.tokens"
NOTES = "Resident memory is the footprint, which iOS limits. Not tested: the app in the background, which iOS suspends."
RESET_SECONDS = 120  # an earlier version of the app ignores --check, and would run on
INSTALL_APP = "build apple/Demo in Xcode and run it on the iPhone once (docs/how-to/apple.md)"


@dataclass
class IPhone:
    identifier: str
    app: str
    memory_tool: None = None
    notes: str = NOTES
    late_steps: int = 40  # a call of devicectl takes seconds
    _options: list[str] = field(default_factory=list)
    _latest: dict[str, Event] = field(default_factory=dict)  # the app's last line of each of its own kinds

    def clear(self) -> None:
        self._launch(["reset"], lambda event: None, ["--timeout", str(RESET_SECONDS)])
        if "heat" not in self._latest:
            raise UserError(f"{self.app} printed nothing for --check; install the app of this version: {INSTALL_APP}")

    def install(self, bundle: Path, text: Path, pack: Path, options: dict[str, Any]) -> None:
        given = option_texts(train_options(), options)
        settings = train_settings(given)
        seq_len, seed = int(settings["seq_len"]), int(settings["seed"])
        prepare_tokens(read_bundle(bundle), text, "train", seq_len, seed, pack / TOKENS, options=settings)
        self._options = native_arguments(given)
        for file in sorted(bundle.iterdir()):
            self._copy(file, f"{BUNDLE}/{file.name}")
        self._copy(pack / TOKENS, TOKENS)

    def train(self, options: Sequence[str], fresh: bool, on_event: OnEvent) -> None:
        files = ["train", BUNDLE, "--data", TOKENS, "--out", OUT]
        self._launch([*files, *([] if fresh else ["--resume"]), *self._options, *options], on_event)

    def signal(self, name: str) -> None:
        pid = str(self._latest["device"]["pid"])
        devicectl("device", "process", "signal", "--device", self.identifier, "--pid", pid, "--signal", f"SIG{name}")

    def facts(self) -> dict[str, str]:
        device = self._latest["device"]
        return {
            "model": str(device["model"]),
            "iOS": str(device["system"]),
            "memory": f"{device['memory'] / 1e6:.0f} MB",
            "memory limit of the app": f"{device['limit_mb']:.0f} MB",
            "cores": " + ".join(map(str, device["cores"])),
        }

    def heat(self) -> Heat:
        """The app's last reading, which it made before its last event."""
        now = self._latest["heat"]
        return Heat(
            status=str(now["thermal"]),
            skin=None,
            cpu=None,
            battery=None,
            battery_percent=int(now["battery_percent"]),
            powered="a charger" if now["charging"] else "",
        )

    def core_count(self) -> int:
        return sum(self._latest["device"]["cores"])

    def answers(self) -> bool:
        try:
            return has_app(self.identifier, self.app)
        except UserError:
            return False

    def _copy(self, file: Path, name: str) -> None:
        container = ["--domain-type", "appDataContainer", "--domain-identifier", self.app]
        where = ["--source", str(file), "--destination", f"{FOLDER}/{name}"]
        devicectl("device", "copy", "to", "--device", self.identifier, *container, *where)

    def _launch(self, arguments: Sequence[str], on_event: OnEvent, options: Sequence[str] = ()) -> None:
        """Runs the app until it ends, and passes the training's events on. Raises UserError with the app's error."""
        how = ["--device", self.identifier, "--console", "--terminate-existing", *options]
        command = ["xcrun", "devicectl", "device", "process", "launch", *how, self.app, "--check", *arguments]
        said: list[str] = []  # by devicectl
        errors: list[str] = []  # of the app

        def take(line: str) -> None:
            if not line.startswith("{"):
                said.append(line)
                return
            event = parsed(line)
            if event["event"] in ("device", "heat"):
                self._latest[event["event"]] = event
            elif event["event"] == "error":
                errors.append(event["message"])
            else:
                on_event(event)

        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
            status = run_lines(command, take, stderr)
            stderr.seek(0)
            said.extend(stderr)
        if errors:
            raise UserError(errors[-1])
        if status != 0:
            raise UserError(message_of(said) or f"devicectl ended with status {status}")

    def __str__(self) -> str:
        return f"iphone {self.identifier}:{FOLDER}"


def find_iphone(name: str, app: str = APP) -> IPhone:
    """Returns the iPhone with this name or identifier, or the only one that is connected if `name` is empty. Raises
    UserError if it cannot be reached or lacks the app."""
    identifier = name or only_iphone()
    if not has_app(identifier, app):
        raise UserError(
            f"{app} is not installed on iPhone {identifier}; {INSTALL_APP}, or give its identifier by --app"
        )
    return IPhone(identifier, app)


def only_iphone() -> str:
    found = {}
    for device in devicectl("list", "devices").get("devices", []):
        hardware, connection = device.get("hardwareProperties", {}), device.get("connectionProperties", {})
        # A paired iPhone is "disconnected" until it is used, and "unavailable" if it is out of reach.
        if hardware.get("platform") == "iOS" and connection.get("tunnelState") != "unavailable":
            found[device["identifier"]] = device.get("deviceProperties", {}).get("name", UNKNOWN)
    if not found:
        raise UserError("no iPhone is connected; connect one, unlock it and trust this Mac")
    if len(found) > 1:
        names = ", ".join(f"{identifier} ({name})" for identifier, name in found.items())
        raise UserError(f"several iPhones are connected; choose one by --iphone: {names}")
    return next(iter(found))


def has_app(identifier: str, app: str) -> bool:
    result = devicectl("device", "info", "apps", "--device", identifier, "--bundle-id", app)
    return any(found.get("bundleIdentifier") == app for found in result.get("apps", []))


def devicectl(*arguments: str) -> dict[str, Any]:
    """Returns the result of a command of devicectl. Raises UserError with its message if it fails."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "result.json"
        command = ["xcrun", "devicectl", *arguments, "--json-output", str(file)]
        lines: list[str] = []
        status = run_lines(command, lines.append, subprocess.STDOUT)
        if status != 0:
            raise UserError(message_of(lines) or f"devicectl ended with status {status}")
        try:
            result: dict[str, Any] = json.loads(file.read_text())["result"]
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"devicectl {' '.join(arguments[:3])}: its result cannot be read ({error})") from error
        return result


def run_lines(command: Sequence[str], take: Callable[[str], object], stderr: IO[str] | int) -> int:
    """Runs a command, passes its lines to `take`, and returns its exit status. An exception in `take`, or Ctrl-C, also
    ends the command: devicectl passes the signal on to the app, which writes a checkpoint."""
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8", errors="replace"
        )
    except FileNotFoundError as error:
        raise UserError(f"{command[0]}: not found; an iPhone is checked from a Mac with Xcode 15 or newer") from error
    with child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                take(line.strip())
        except BaseException:
            child.terminate()
            for _ in child.stdout:  # or it could not print its last lines, and would not end
                pass
            raise
    return child.returncode


def parsed(line: str) -> Event:
    try:
        return parse_event(line)
    except ValueError as error:
        raise UserError(f"the app printed {line!r}, which is not an event") from error


def message_of(lines: Sequence[str]) -> str:
    """Returns devicectl's error, with the details in the lines that follow it, or else its last line."""
    stripped = [line.strip() for line in lines if line.strip(" -\n")]
    start = next((i for i, line in enumerate(stripped) if line.startswith("ERROR:")), len(stripped) - 1)
    return "; ".join(stripped[max(start, 0) :]).removeprefix("ERROR:").strip()
