"""run.yaml: the full configuration of a run, with which it can be repeated."""

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
_HEAD = "# Configuration of a training run. To repeat it: mobile-ft train --config run.yaml --out DIR\n"


class _Loader(yaml.SafeLoader):
    """Rejects aliases, with which a few lines can expand to millions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported; write the value out")
        return super().compose_node(parent, index)


def read_run_file(path: Path) -> dict[str, Any]:
    """Reads options of `train` by name, with bundle, data, valid, out and adapter. Leaves out null values.

    Raises UserError, with the file and the key, if the file cannot be used.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise UserError(f"{path}: larger than {_MOST_BYTES} bytes; use a run.yaml written by `mobile-ft train`")
    try:
        values = yaml.load(text, _Loader)
    except Exception as error:  # parsing numbers and dates can raise any exception
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: must be a mapping of options, one per line, such as `steps: 100`")
    known = [*_PATHS, *(option.name for option in train_options())]
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{path}: {key}: unknown option{did_you_mean(str(key), known)}")
        if key in _PATHS and value is not None:
            if not isinstance(value, str):
                raise UserError(f"{path}: {key}: {value!r} is not a path")
            check_text(f"{path}: {key}", value)
            values[key] = text_path(value)
    return {key: value for key, value in values.items() if value is not None}


def write_run_file(
    out: Path, plan: Event, given: Mapping[str, str], paths: Mapping[str, str | os.PathLike[str] | None]
) -> None:
    """Writes OUT/run.yaml with absolute `paths`, and every option with its value in the plan event.

    Values that the plan resolved are written as if they had been given, because a machine with other cores or memory
    would choose others. The plan converts epochs to steps; they are written as they were given.
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
    """Returns an absolute path. The name of a data set on the hub is not a path and is returned unchanged."""
    is_name = not os.path.exists(path) and is_hub_name(os.fspath(path))
    return path_text(path if is_name else os.path.abspath(path))
