"""The library's exceptions and its warning, and what their text may hold."""

_MOST = 1000  # characters of a message
_END = 300  # of them, those of its end: what would be right is said last


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


def one_line(message: object) -> str:
    """The text as a terminal can show it in a line: what is not printable escaped, and not much of it.

    Messages quote what a file or another library says, which may be anything.
    """
    text = _cut(str(message))
    if text.isprintable():
        return text
    # An escape is longer than what it stands for.
    return _cut("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST - _END]} ... {text[-_END:]}"
