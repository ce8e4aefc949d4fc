"""run.yaml: the full configuration of a run, which repeats it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from mobile_ft.api.files import write_text
from mobile_ft.api.native import Event
from mobile_ft.api.options import did_you_mean, value_of
from mobile_ft.errors import UserError
from mobile_ft.runtime import train_options

RUN_FILE = "run.yaml"
_PATHS = ("bundle", "data", "valid", "out", "adapter")
_HEAD = "# What `mobile-ft train` ran with; `mobile-ft train --config run.yaml --out DIR` repeats it.\n"


def read_run_file(path: Path) -> dict[str, Any]:
    """Options of `train` by name, with bundle, data, valid, out and adapter; what is null is left out.

    Raises UserError naming the file, and the key that is unknown.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: a mapping of options is wanted, such as `steps: 100`, a line each")
    known = [*_PATHS, *(option.name for option in train_options())]
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{path}: {key}: no such option{did_you_mean(str(key), known)}")
        if key in _PATHS and not isinstance(value, (str, type(None))):
            raise UserError(f"{path}: {key}: {value!r} is no path")
    return {key: value for key, value in values.items() if value is not None}


def write_run_file(
    out: Path, plan: Event, given: Mapping[str, str], paths: Mapping[str, str | os.PathLike[str] | None]
) -> None:
    """Writes OUT/run.yaml: `paths` made absolute, and every option with the value that the plan event tells.

    What the plan resolved is written as if it had been asked for: a machine with more cores or memory than this one
    would else choose otherwise. The plan tells epochs in steps; they are written as they were given.
    """
    lines: dict[str, Any] = {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
    options = {option.name: option for option in train_options()}
    texts = plan["options"] | plan["resolved"]
    if float(given.get("epochs", 0)) > 0:
        texts |= {"epochs": given["epochs"], "steps": ""}
    else:
        texts["epochs"] = ""
    for name, text in texts.items():
        if text != "":
            lines[name] = value_of(options[name], text)
    write_text(out / RUN_FILE, _HEAD + yaml.safe_dump(lines, sort_keys=False, allow_unicode=True))
