"""Training runs on the page: started, watched, paused and resumed. Pause is stop, saved, and resume."""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mobile_ft.api.options import option_texts, value_of
from mobile_ft.api.reporting import LOG_FILE
from mobile_ft.api.train import CHECKPOINT
from mobile_ft.errors import UserError
from mobile_ft.model.lora import CONFIG_FILE, WEIGHTS_FILE
from mobile_ft.runtime import Option, train_options
from mobile_ft.studio import jobs
from mobile_ft.studio.workspace import Workspace, names, new_place, place

_TRAINING = ".training"  # in the folder of runs: locked while one trains
_MOST_LOG = 1 << 20  # bytes of a log after which an answer ends, with a whole line
# What the page does not draw: lists of a figure per unit.
_LEFT_OUT = ("unit_names", "trained", "losses", "backward_runs", "method_seconds", "op_seconds", "moments")


def list_options(studio: Workspace) -> dict[str, Any]:
    """The options of a training, as the command line shows them."""
    return {
        "options": [
            {
                "name": option.name,
                "type": option.type,
                "choices": option.choices,
                "default": option.default,
                "help": option.help,
                "group": option.group,
            }
            for option in _offered()
        ]
    }


def commands(studio: Workspace, model: str, data: str, name: str, options: dict[str, str]) -> dict[str, str]:
    """The command line and the Python that do what the page would start."""
    bundle, rows, out = studio.model(model), studio.rows(data), place(studio.runs, name)
    given = _given(options)
    line = ["mobile-ft", *_arguments(bundle, rows, out, given)]
    values = "".join(f"    {option}={value!r},\n" for option, value in _values(given).items())
    paths = "".join(f"    {str(path)!r},\n" for path in (bundle, rows, out))
    call = f'mobile_ft.train(\n{paths}    report_to="jsonl",\n{values})'
    return {"shell": shlex.join(line), "python": f"import mobile_ft\n\n{call}\n"}


def start_run(studio: Workspace, model: str, data: str, name: str, options: dict[str, str]) -> dict[str, Any]:
    """Starts a training as a process of its own."""
    folder = new_place(studio.runs, name)
    arguments = _arguments(studio.model(model), studio.rows(data), folder, _given(options))
    folder.mkdir()
    try:
        _start(studio, folder, arguments)
    except (UserError, OSError, ValueError):
        shutil.rmtree(folder)
        raise
    return {"name": name}


def list_runs(studio: Workspace) -> dict[str, Any]:
    return {"runs": [_describe(studio.runs / name) for name in names(studio.runs)]}


def read_run(studio: Workspace, run: str, start: int) -> dict[str, Any]:
    """The events of a run from byte `start` of its log on, and where the next ones begin."""
    folder = studio.run(run)
    described = _describe(folder)  # before the log, so that the log of an ended run is whole
    events, end = [], start
    log = folder / LOG_FILE
    if log.exists():
        with log.open("rb") as file:
            file.seek(max(0, start))
            text = file.read(_MOST_LOG) + file.readline()  # of a longer line, all
        whole = text[: text.rfind(b"\n") + 1]
        events = [event for line in whole.splitlines() if (event := _event(line))]
        end = start + len(whole)
    shown = [{key: value for key, value in event.items() if key not in _LEFT_OUT} for event in events]
    return {"run": described, "events": shown, "next": end}


def stop_run(studio: Workspace, run: str) -> dict[str, Any]:
    """Ends a run after its step, with a checkpoint."""
    jobs.interrupt(studio.run(run))
    return list_runs(studio)


def resume_run(studio: Workspace, run: str) -> dict[str, Any]:
    """Goes on from a run's checkpoint, with the options that it was started with."""
    folder = studio.run(run)
    if not (folder / CHECKPOINT).exists():
        raise UserError(f"run {run}: has no checkpoint; start it again under another name")
    arguments = jobs.arguments_of(folder)
    _start(studio, folder, [*arguments, *([] if "--resume" in arguments else ["--resume"])])
    return list_runs(studio)


def remove_run(studio: Workspace, run: str) -> dict[str, Any]:
    folder = studio.run(run)
    if jobs.is_running(folder):
        raise UserError(f"run {run}: is training; stop it first")
    shutil.rmtree(folder)
    return list_runs(studio)


def bundle_of(studio: Workspace, run: str) -> Path:
    """The bundle that a run trains."""
    arguments = jobs.arguments_of(studio.run(run))
    if len(arguments) < 2:
        raise UserError(f"run {run}: was not started here")
    return Path(arguments[1])


def is_trained(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (CONFIG_FILE, WEIGHTS_FILE))


def _describe(folder: Path) -> dict[str, Any]:
    state = jobs.state(folder)
    arguments = jobs.arguments_of(folder)
    status = "running" if state.running else "stopped" if state.interrupted else "failed" if state.error else "ended"
    return {
        "name": folder.name,
        "status": status,
        "error": state.error,
        "model": Path(arguments[1]).name if len(arguments) > 1 else "",
        "trained": is_trained(folder),
        "can_resume": status in ("stopped", "failed") and (folder / CHECKPOINT).exists(),
    }


def _event(line: bytes) -> dict[str, Any] | None:
    """A line of a log; None for one that a crash cut off. Numbers that JSON does not have are null."""
    try:
        event = json.loads(line, parse_constant=lambda name: None)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _start(studio: Workspace, folder: Path, arguments: Sequence[str]) -> None:
    """Starts a training, unless one runs: two at once would share the cores and double the memory."""
    try:
        jobs.start(folder, arguments, alone=studio.runs / _TRAINING)
    except UserError as error:
        if running := running_runs(studio):
            raise UserError(f"run {', '.join(running)}: is training; {error}") from error
        raise


def _offered() -> list[Option]:
    return [option for option in train_options() if option.help]


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """The options that were set. Raises UserError for an unknown one."""
    return option_texts(_offered(), {name: value for name, value in options.items() if value != ""})


def _arguments(bundle: Path, rows: Path, out: Path, given: Mapping[str, str]) -> list[str]:
    kinds = {option.name: option for option in _offered()}
    arguments = ["train", str(bundle), "--data", str(rows), "--out", str(out), "--report-to", "jsonl"]
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if kinds[name].type != "flag":
            arguments += [f"{flag}={value}"] if value.startswith("-") else [flag, value]
        elif value == "true":
            arguments.append(flag)
        elif kinds[name].default == "true":
            arguments.append(f"--no-{flag[2:]}")
    return arguments


def _values(given: Mapping[str, str]) -> dict[str, Any]:
    """The options as a Python program would write them."""
    values: dict[str, Any] = dict(given)
    for option in _offered():
        if option.name in given:
            with suppress(ValueError):  # a size such as 300MB, or a mistake, stays text
                values[option.name] = value_of(option, given[option.name])
    return values


def running_runs(studio: Workspace) -> list[str]:
    """Names of the runs that go on."""
    return [name for name in names(studio.runs) if jobs.is_running(studio.runs / name)]
