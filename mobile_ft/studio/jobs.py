"""Commands of mobile-ft that run as processes of their own: they go on if the page is closed or the server ends.

A job has a folder with `job.json` (its command and process) and `output.txt` (what it printed).
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mobile_ft.api.files import write_json

JOB_FILE, OUTPUT_FILE = "job.json", "output.txt"
_ERROR = "mobile-ft: error: "
_PROGRESS = re.compile(r"(\d+)/(\d+)")
_MOST_OUTPUT = 20_000  # bytes of the output's end that are read

# Of this server. They have to be waited for, or else they would seem to run after their end.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


@dataclass(frozen=True)
class JobState:
    """A job, running or ended."""

    running: bool
    error: str  # of a job that failed; else ""
    line: str  # the last one that it printed
    progress: float | None  # from 0 to 1, if its output says so


def start(folder: Path, arguments: Sequence[str]) -> None:
    """Starts `mobile-ft ARGUMENTS` in a session of its own, so that neither Ctrl-C nor the server's end reaches it."""
    command = [sys.executable, "-m", "mobile_ft.cli.main", *arguments]
    with (folder / OUTPUT_FILE).open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    _children[child.pid] = child
    write_json(folder / JOB_FILE, {"pid": child.pid, "arguments": list(arguments)})


def state(folder: Path) -> JobState:
    running = _pid(folder) is not None
    lines = _output(folder)
    error = ""
    if not running and lines and lines[-1].startswith(_ERROR):
        error = lines[-1].removeprefix(_ERROR)
    steps = _PROGRESS.search(lines[-1]) if lines else None
    progress = int(steps[1]) / max(1, int(steps[2])) if steps else None
    return JobState(running, error, lines[-1] if lines else "", progress)


def interrupt(folder: Path) -> None:
    """Ends a job as Ctrl-C does. A training first finishes its step and saves a checkpoint."""
    pid = _pid(folder)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)


def arguments_of(folder: Path) -> list[str]:
    """Returns the arguments that a job was started with; [] if it has none."""
    try:
        found = json.loads((folder / JOB_FILE).read_text())["arguments"]
        return [str(part) for part in found]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _pid(folder: Path) -> int | None:
    """Returns the process of a job that runs. An id that another program got meanwhile is not the job's."""
    try:
        pid = int(json.loads((folder / JOB_FILE).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if pid in _children:
        return pid if _children[pid].poll() is None else None
    listed = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True)
    return pid if str(folder) in listed.stdout and "mobile_ft" in listed.stdout else None


def _output(folder: Path) -> list[str]:
    try:
        with (folder / OUTPUT_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OUTPUT))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
