"""run.yaml: the full configuration of a run, which repeats it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mobile_ft.api.files import write_text
from mobile_ft.api.native import Event
from mobile_ft.api.options import check_text, did_you_mean, value_of
from mobile_ft.data.rows import is_hub_name
from mobile_ft.errors import UserError
from mobile_ft.files.path_text import path_text, text_path
from mobile_ft.runtime import train_options

RUN_FILE = "run.yaml"
_MOST_BYTES = 1 << 16
_PATHS = ("bundle", "data", "valid", "out", "adapter")
_HEAD = "# What `mobile-ft train` ran with; `mobile-ft train --config run.yaml --out DIR` repeats it.\n"


class _Loader(yaml.SafeLoader):
    """Without aliases, by which a few lines can stand for millions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias; write the value out")
        return super().compose_node(parent, index)


def read_run_file(path: Path) -> dict[str, Any]:
    """Options of `train` by name, with bundle, data, valid, out and adapter; what is null is left out.

    Raises UserError naming the file, and the key that is unknown.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path}: more than {_MOST_BYTES} bytes; a run.yaml of `mobile-ft train` has some thousand")
    try:
        values = yaml.load(text, _Loader)
    except Exception as error:  # what makes a number or a date of a text raises all there is
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: a mapping of options is wanted, such as `steps: 100`, a line each")
    known = [*_PATHS, *(option.name for option in train_options())]
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{path}: {key}: no such option{did_you_mean(str(key), known)}")
        if key in _PATHS and value is not None:
            if not isinstance(value, str):
                raise UserError(f"{path}: {key}: {value!r} is no path")
            check_text(f"{path}: {key}", value)
            values[key] = text_path(value)
    return {key: value for key, value in values.items() if value is not None}


def write_run_file(
    out: Path, plan: Event, given: Mapping[str, str], paths: Mapping[str, str | os.PathLike[str] | None]
) -> None:
    """Writes OUT/run.yaml: `paths` made absolute, and every option with the value that the plan event tells.

    What the plan resolved is written as if it had been asked for: a machine with more cores or memory than this one
    would else choose otherwise. The plan tells epochs in steps; they are written as they were given.
    """
    lines: dict[str, Any] = {name: _absolute(path) for name, path in paths.items() if path is not None}
    texts = plan["options"] | plan["resolved"]
    if float(given.get("epochs", 0)) > 0:
        texts |= {"epochs": given["epochs"], "steps": ""}
    else:
        texts["epochs"] = ""
    for option in train_options():
        if texts[option.name] != "":
            lines[option.name] = value_of(option, texts[option.name])
    write_text(out / RUN_FILE, _HEAD + yaml.safe_dump(lines, sort_keys=False, allow_unicode=True))


def _absolute(path: str | os.PathLike[str]) -> str:
    """A path as any folder has it; the name of a data set on the hub, which is no path, as it is."""
    is_name = not os.path.exists(path) and is_hub_name(os.fspath(path))
    return path_text(path if is_name else os.path.abspath(path))
