"""Commands of mobile-ft that run as processes of their own: they go on if the page is closed or the server ends.

A job has a folder with `job.json` (its command), `output.txt` (what it printed), what `job` writes, and `lock`, which
its process keeps locked while it lives, whoever started it.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.errors import UserError
from mobile_ft.studio.job import PID_FILE, STATUS_FILE

JOB_FILE, OUTPUT_FILE, LOCK_FILE = "job.json", "output.txt", "lock"
_PROGRESS = re.compile(r"(\d+)/(\d+)")
_ERROR = re.compile(r"^mobile-ft( \w+)?: error: ")
_DONE, _INTERRUPTED, _KILLED = "0", "130", ""  # exit statuses; a killed process writes none
_START_SECONDS = 10.0  # that a process may take until it can be interrupted
_ASK_SECONDS = 0.5  # longer than `is_running` holds a lock
_MOST_OUTPUT = 20_000  # bytes of the output's end that are read

# Of this server. They have to be waited for, or else they would stay in the list of processes.
_children: list["subprocess.Popen[bytes]"] = []


@dataclass(frozen=True)
class JobState:
    """A job, running or ended."""

    running: bool
    interrupted: bool
    error: str  # of a job that failed; else ""
    line: str  # the last one that it printed
    progress: float | None  # from 0 to 1, if its output says so


def start(folder: Path, arguments: Sequence[str], alone: Path | None = None) -> None:
    """Starts `mobile-ft ARGUMENTS` in a session of its own, so that neither Ctrl-C nor the server's end reaches it.

    Raises UserError if the job runs already, or another one that was started with the same lock file `alone`.
    """
    _children[:] = [child for child in _children if child.poll() is None]
    with ExitStack() as stack:
        locks = [stack.enter_context(_locked(path)) for path in (alone, folder / LOCK_FILE) if path is not None]
        write_json(folder / JOB_FILE, {"arguments": list(arguments)})  # an error after the start would leave it running
        for name in (PID_FILE, STATUS_FILE):
            (folder / name).unlink(missing_ok=True)
        output = stack.enter_context((folder / OUTPUT_FILE).open("wb"))
        child = subprocess.Popen(
            [sys.executable, "-m", "mobile_ft.studio.job", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=locks,  # it inherits the locks, and the system gives them up when it ends
        )
        _children.append(child)


def state(folder: Path) -> JobState:
    running = is_running(folder)
    lines = _output(folder)
    line = lines[-1] if lines else ""
    error, status = "", _read(folder / STATUS_FILE)
    if not running and status not in (_DONE, _INTERRUPTED):
        error = "its process was killed" if status == _KILLED else _ERROR.sub("", line)
    steps = _PROGRESS.search(line)
    progress = int(steps[1]) / max(1, int(steps[2])) if steps else None
    return JobState(running, not running and status == _INTERRUPTED, error, line, progress)


def is_running(folder: Path) -> bool:
    """Whether a job's process lives. Shared locks do not exclude each other, so that several can ask at once."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none
        return False
    return False


def interrupt(folder: Path) -> None:
    """Ends a job as Ctrl-C does. A training first finishes its step and saves a checkpoint."""
    end = time.monotonic() + _START_SECONDS
    while is_running(folder) and time.monotonic() < end:
        if pid := _read(folder / PID_FILE):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGINT)
            return
        time.sleep(_START_SECONDS / 1000)


def arguments_of(folder: Path) -> list[str]:
    """Returns the arguments that a job was started with; [] if it has none."""
    try:
        return [str(part) for part in json.loads(_read(folder / JOB_FILE))["arguments"]]
    except (ValueError, KeyError, TypeError):
        return []


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Yields the descriptor of a file that is locked. A process that inherits it keeps the lock."""
    with path.open("wb") as file:
        end = time.monotonic() + _ASK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= end:
                    raise UserError("another one runs; stop it first, or wait for its end") from error
                time.sleep(_ASK_SECONDS / 100)
        yield file.fileno()


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _output(folder: Path) -> list[str]:
    try:
        with (folder / OUTPUT_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OUTPUT))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
