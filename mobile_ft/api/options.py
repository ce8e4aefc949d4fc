"""Options of training and generation. The runtime lists them and checks their values; this module checks names."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mobile_ft.errors import BusyError, UserError
from mobile_ft.runtime import BusyError as NativeBusyError
from mobile_ft.runtime import Option, RuntimeFailure, TrainConfig, train_options

_CLOSE = 0.53  # "temperature" is close to "temp", and "step" to "steps" alone


def step_options() -> list[Option]:
    """Returns the options that affect the memory and time of a step, and thus the plan."""
    return [option for option in train_options() if option.group == "step"]


def option_texts(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, str]:
    """Returns the given options as text, without those that are None. Raises UserError for an unknown name."""
    known = [option.name for option in options]
    for name in given:
        if name not in known:
            raise UserError(f"{name}: unknown option{did_you_mean(name, known)}")
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    for name, text in texts.items():
        check_text(name, text)
    return texts


def check_text(name: str, text: str) -> None:
    """Raises UserError if this text, an option's value or a path, cannot be passed to the runtime."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{name}: {text!r} is not valid UTF-8 text")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: names similar to `name`, or all known names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, cutoff=_CLOSE)
    return f"; did you mean {' or '.join(near)}?" if near else f"; known: {', '.join(names)}"


def train_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Returns every training option with its value. Raises UserError if the runtime rejects a value."""
    with runtime_errors():
        settings: dict[str, str] = TrainConfig(**given).options()
        return settings


def value_of(option: Option, text: str) -> Any:
    """Converts the text of an option's value to the option's type."""
    if text and option.type in ("integer", "size"):
        return int(text)
    if option.type == "flag":
        return text == "true"
    return float(text) if option.type == "number" and text not in ("", "auto") else text


def native_arguments(given: Mapping[str, str]) -> list[str]:
    """Returns the options as command-line arguments of mft-run."""
    return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", value)]


@contextmanager
def runtime_errors() -> Iterator[None]:
    """Raises errors of the runtime in the block as UserError or BusyError."""
    try:
        yield
    except NativeBusyError as error:
        raise BusyError(str(error)) from error
    except RuntimeFailure as error:
        raise UserError(str(error)) from error


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
