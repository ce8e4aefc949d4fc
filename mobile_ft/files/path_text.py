"""Converts paths to UTF-8 text under any locale, for files and for C++ libraries.

Under a locale that is not UTF-8, such as C without UTF-8 mode, Python decodes the bytes of a path that it does not know
as surrogates or as other characters.
"""

import os


def path_text(path: str | os.PathLike[str]) -> str:
    """Decodes the path's bytes as UTF-8. Invalid bytes become surrogates."""
    text = os.fspath(path)
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # the locale lacks these characters, so the path came from a text
        return text


def text_path(text: str) -> str:
    """Converts a text of `path_text` back to a path under this process's locale."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def argument_bytes(text: str) -> bytes:
    """Encodes an argument of another program, a path or a text."""
    return path_text(text).encode("utf-8", "surrogateescape")
