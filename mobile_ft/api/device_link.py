"""Connects to a device: a phone by adb, another machine (or Termux on a phone) by ssh, or this machine."""

import io
import shlex
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from mobile_ft.errors import UserError


@dataclass(frozen=True)
class Device:
    """A folder on a device.

    Args:
        kind: "adb", "ssh", or "local" for a folder of this machine.
        name: An adb serial number ("" for the only device), or a host name of ssh.
        folder: Path of the folder on the device.
    """

    kind: Literal["adb", "ssh", "local"]
    name: str
    folder: str

    def command(self, script: str) -> list[str]:
        """Returns the command that runs `script` in the device's shell, in the folder."""
        there = f"cd {shlex.quote(self.folder)} && {script}"
        return self._adb("shell", there) if self.kind == "adb" else self._shell(there)

    def push(self, local: Path, names: Sequence[str]) -> None:
        """Copies these files and folders of `local` into the folder. Raises UserError if that fails."""
        make = f"mkdir -p {shlex.quote(self.folder)}"
        if self.kind == "adb":
            _run(self._adb("shell", make))
            _run(self._adb("push", *(str(local / name) for name in names), self.folder))
            return
        script = f"{make} && tar -xf - -C {shlex.quote(self.folder)}"
        with subprocess.Popen(["tar", "-cf", "-", "-C", str(local), *names], stdout=subprocess.PIPE) as packing:
            _run(self._shell(script), packing.stdout)

    def output(self, script: str) -> bytes:
        """Returns the output of `script` in the folder, or b"" if the folder does not exist. Raises UserError if the
        device cannot be reached."""
        there = f"cd {shlex.quote(self.folder)} 2>/dev/null && {script} || true"
        return _run(self._adb("exec-out", there) if self.kind == "adb" else self._shell(there))

    def pull(self, folder: str, local: Path) -> None:
        """Copies the contents of a folder on the device into `local`, which exists. Raises UserError if that fails."""
        script = f"cd {shlex.quote(self.folder + '/' + folder)} && tar -cf - ."
        packed = _run(self._adb("exec-out", script) if self.kind == "adb" else self._shell(script))
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(local, filter="data")  # writes nothing outside of `local`, whatever the device sends
        except tarfile.TarError as error:
            said = packed[:200].decode(errors="replace").strip()
            raise UserError(f"{self}: cannot read the folder {folder} ({said or error})") from error

    def _shell(self, script: str) -> list[str]:
        return ["sh", "-c", script] if self.kind == "local" else ["ssh", self.name, script]

    def _adb(self, *arguments: str) -> list[str]:
        return ["adb", *(["-s", self.name] if self.name else []), *arguments]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}:{self.folder}".replace(" :", ":")


def _run(command: Sequence[str], stdin: IO[bytes] | int | None = subprocess.DEVNULL) -> bytes:
    try:
        done = subprocess.run(command, stdin=stdin, capture_output=True)
    except FileNotFoundError as error:
        raise UserError(f"{command[0]}: not found; install it to reach the device") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise UserError(f"{shlex.join(command)}: {lines[-1] if lines else f'failed with status {done.returncode}'}")
    return bytes(done.stdout)
