"""Logs the metrics of a run to a file, TensorBoard, trackio or Weights & Biases.

A reporter is a context manager that yields a callback for events. Its package is imported when it is opened.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from mobile_ft.api.files import writing
from mobile_ft.api.native import Event
from mobile_ft.api.options import did_you_mean
from mobile_ft.errors import UserError

Reporter = Callable[[Event], None]

LOG_FILE = "log.jsonl"
_PROJECT = "mobile-ft"
_NO_FIGURES = ("event", "step", "best", "trained")


def open_reporters(names: str | Sequence[str], out: Path, resume: bool) -> list[AbstractContextManager[Reporter]]:
    """Opens one reporter per name. Raises UserError if a name is unknown or its package is not installed."""
    reporters = []
    for name in [names] if isinstance(names, str) else names:
        if name not in _REPORTERS:
            raise UserError(f"report_to {name}: unknown logger{did_you_mean(name, _REPORTERS)}")
        reporters.append(_REPORTERS[name](_import(name), out, resume))
    return reporters


def figures(event: Event) -> dict[str, float]:
    """Returns an event's metrics, such as "train/loss" of a step or "eval/loss" of a validation; {} for others."""
    prefix = {"step": "train", "eval": "eval"}.get(event["event"])
    if prefix is None:
        return {}
    return {f"{prefix}/{name}": value for name, value in event.items() if name not in _NO_FIGURES and value is not None}


@contextmanager
def _jsonl(module: None, out: Path, resume: bool) -> Iterator[Reporter]:
    """Writes every event as a line of OUT/log.jsonl."""
    path = out / LOG_FILE
    with writing(path):
        out.mkdir(parents=True, exist_ok=True)
        file = path.open("a" if resume else "w", encoding="utf-8", buffering=1)

    def report(event: Event) -> None:
        with writing(path):
            file.write(json.dumps(event) + "\n")

    with file:
        yield report


@contextmanager
def _tensorboard(module: Any, out: Path, resume: bool) -> Iterator[Reporter]:
    """Writes an event file in OUT/tensorboard."""
    writer = module.SummaryWriter(str(out / "tensorboard"))

    def report(event: Event) -> None:
        if event["event"] == "plan":
            rows = "\n".join(f"| {name} | {value} |" for name, value in event["options"].items())
            writer.add_text("options", f"| option | value |\n|---|---|\n{rows}")
        for name, value in figures(event).items():
            writer.add_scalar(name, value, event["step"])

    try:
        yield report
    finally:
        writer.close()


@contextmanager
def _tracker(module: Any, out: Path, resume: bool) -> Iterator[Reporter]:
    """Logs to trackio or wandb, which share an interface: `init`, `log` and `finish`."""
    started = False

    def report(event: Event) -> None:
        nonlocal started
        if event["event"] == "plan":
            module.init(project=_PROJECT, name=out.resolve().name, config=event["options"])
            started = True
        elif values := figures(event):
            module.log(values, step=event["step"])

    try:
        yield report
    finally:
        if started:
            module.finish()


_REPORTERS: dict[str, Callable[[Any, Path, bool], AbstractContextManager[Reporter]]] = {
    "jsonl": _jsonl,
    "tensorboard": _tensorboard,
    "trackio": _tracker,
    "wandb": _tracker,
}
_MODULES = {"tensorboard": "tensorboardX", "trackio": "trackio", "wandb": "wandb"}
NAMES = tuple(_REPORTERS)


def _import(name: str) -> Any:
    if name not in _MODULES:
        return None
    try:
        return importlib.import_module(_MODULES[name])
    except ImportError as error:
        raise UserError(
            f"report_to {name}: {_MODULES[name]} is not installed; run `pip install {_MODULES[name]}`"
        ) from error
