"""Options of training and generation. The runtime lists them and checks their values; here only names are checked."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mobile_ft.errors import BusyError, UserError
from mobile_ft.runtime import BusyError as NativeBusyError
from mobile_ft.runtime import Option, RuntimeFailure, TrainConfig, train_options

_CLOSE = 0.53  # "temperature" is close to "temp", and "step" to "steps" alone


def step_options() -> list[Option]:
    """What decides over a step's memory and time, and so over the plan."""
    return [option for option in train_options() if option.group == "step"]


def option_texts(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, str]:
    """What is given (None: not given) as text. Raises UserError on an unknown name."""
    known = [option.name for option in options]
    for name in given:
        if name not in known:
            raise UserError(f"{name}: no such option{did_you_mean(name, known)}")
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    for name, text in texts.items():
        check_text(name, text)
    return texts


def check_text(name: str, text: str) -> None:
    """Raises UserError where the runtime could not be told this text: an option's value, or a path."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{name}: {text!r}: not a text in UTF-8")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence that names what is close to `name`, or all there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, cutoff=_CLOSE)
    return f"; did you mean {' or '.join(near)}?" if near else f"; known are {', '.join(names)}"


def train_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Every option of training with its value. Raises UserError where the runtime refuses one."""
    with runtime_errors():
        settings: dict[str, str] = TrainConfig(**given).options()
        return settings


def value_of(option: Option, text: str) -> Any:
    """An option's value, as the runtime tells it, as a number where it is one."""
    if text and option.type in ("integer", "size"):
        return int(text)
    if option.type == "flag":
        return text == "true"
    return float(text) if text and option.type == "number" else text


def native_arguments(given: Mapping[str, str]) -> list[str]:
    """The options as mft-run takes them."""
    return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", value)]


@contextmanager
def runtime_errors() -> Iterator[None]:
    """Errors of the runtime in the block are raised as the library's own."""
    try:
        yield
    except NativeBusyError as error:
        raise BusyError(str(error)) from error
    except RuntimeFailure as error:
        raise UserError(str(error)) from error


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
