"""Runs the native `mft-run` as a child process and reads its events."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from mobile_ft.api.trust import native_trust
from mobile_ft.errors import UserError
from mobile_ft.files.path_text import argument_bytes
from mobile_ft.runtime import mft_run_path, renamed

Event = dict[str, Any]

_ERROR = "mft-run: error: "
_STOPPED = "stopped by signal"  # the beginning of mft-run's error after a signal, with everything saved
_BY_SHELL, _BY_SSH = 128, 255  # exit status of a shell whose command a signal ended, and of ssh that a signal ended


class KilledError(UserError):
    """A signal ended the child process."""

    def __init__(self, number: int) -> None:
        super().__init__(f"mft-run was killed (signal {number})")
        self.signal = number


def run_native(
    arguments: Sequence[str],
    on_event: Callable[[Event], None],
    confine: Callable[[], None] | None = None,
    on_start: Callable[[int], None] = lambda pid: None,
) -> None:
    """Runs mft-run and passes each event to `on_event`, as `run_command` does."""
    run_command([str(mft_run_path()), *arguments, *native_trust()], on_event, confine, on_start)


def run_command(
    command: Sequence[str],
    on_event: Callable[[Event], None],
    confine: Callable[[], None] | None = None,
    on_start: Callable[[int], None] = lambda pid: None,
) -> None:
    """Runs a command that prints the events of mft-run, and passes each event to `on_event`.

    The child process calls `confine` before it executes the command. `on_start` receives its process id.
    Raises UserError with the child's message if it fails, and KilledError if a signal ended it. Ctrl-C, or an exception
    in a callback, also ends the child and is raised again afterwards, unless the child then fails. A training child
    first finishes its step and writes a checkpoint, and its events up to there are passed on. A second Ctrl-C kills the
    child at once.
    """
    with tempfile.TemporaryFile() as errors:  # a pipe could fill up, because nothing reads it meanwhile
        with subprocess.Popen(
            [argument_bytes(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            preexec_fn=confine,
        ) as child:
            try:
                on_start(child.pid)
                _read_events(child, on_event)
            except BaseException as reason:
                child.terminate()
                _read_last_events(child, on_event)
                if not _was_stopped(child.returncode, errors):
                    raise _failure(child.returncode, errors) from reason
                raise
        if child.returncode != 0:
            raise _failure(child.returncode, errors)


def parse_event(line: str) -> Event:
    """A line of mft-run's, which may be an earlier version's: a pack on a device keeps the one it was made with."""
    names = renamed()
    return {names.get(name, name): value for name, value in json.loads(line).items()}


def _read_events(child: subprocess.Popen[str], on_event: Callable[[Event], None]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        try:
            event = parse_event(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{_text(child.args)} printed {line!r}, which is not an event of mft-run") from error
        on_event(event)
    child.wait()


def _text(arguments: Any) -> str:
    return repr([os.fsdecode(part) for part in arguments])


def _read_last_events(child: subprocess.Popen[str], on_event: Callable[[Event], None]) -> None:
    """Reads events until the child ends. Without a reader, the child could not write its last events and would fail."""
    assert child.stdout is not None
    try:
        for line in child.stdout:
            with suppress(json.JSONDecodeError):  # a part of the line may already have been consumed
                on_event(parse_event(line))
        child.wait()
    except BaseException:
        child.kill()
        raise


def _was_stopped(status: int, errors: IO[bytes]) -> bool:
    """Whether the exit status of a child that was asked to end means that it did so, and did not fail."""
    signals = (signal.SIGINT, signal.SIGTERM)
    by_signal = [-number for number in signals] + [_BY_SHELL + number for number in signals]
    return status in (0, _BY_SSH, *by_signal) or _message(errors).startswith(_STOPPED)


def _failure(status: int, errors: IO[bytes]) -> UserError:
    return KilledError(-status) if status < 0 else UserError(_message(errors))


def _message(errors: IO[bytes]) -> str:
    """Returns the child's one-line error, without the child's name."""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    own = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    return (own or lines or ["mft-run failed without a message"])[-1]
