"""The library's exceptions and its warning, and the limits of their text."""

from importlib.util import find_spec

# The extra of mobile-ft that brings a package which only some commands need.
_EXTRAS = {
    "gguf": "gguf",
    "matplotlib": "plots",
    "onnx": "onnx",
    "starlette": "studio",
    "torch": "export",
    "uvicorn": "studio",
}
_MOST = 1000  # characters of a message
_END = 300  # of these, characters kept from the end, where a message says what would be right


class UserError(Exception):
    """An input cannot be used. The message is one line that names the file, row or value, and what would be right."""

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


class BusyError(RuntimeError):
    """Another thread's call on the same model is in progress. This call did nothing."""


class MobileFtWarning(UserWarning):
    """An input was accepted with a change, such as a row that was cut. The message is one line."""

    def __init__(self, message: object) -> None:
        super().__init__(one_line(message))


def check_installed(package: str, wanted: str) -> None:
    """Raises UserError if `package`, which `wanted` needs, is not installed. Does not import it."""
    if find_spec(package) is None:
        raise not_installed(package, wanted)


def not_installed(package: str, wanted: str) -> UserError:
    """Names the extra of mobile-ft that brings `package`."""
    name = f"mobile-ft[{_EXTRAS[package]}]" if package in _EXTRAS else package
    return UserError(f"{wanted}: {package} is not installed; install it with `pip install '{name}'`")


def one_line(message: object) -> str:
    """Returns the message as one printable line: other characters are escaped, and long text is shortened.

    Messages quote files and other libraries, so they may contain anything.
    """
    text = _cut(str(message))
    if text.isprintable():
        return text
    # An escape sequence is longer than its character.
    return _cut("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - _END]} ... {text[-_END:]}"
