"""Paths as texts in UTF-8, whatever the locale: what files hold of them, and what libraries in C++ are told.

Under another locale, C without UTF-8 mode say, Python has surrogates in a path for the bytes that it cannot decode, or
other characters.
"""

import os


def path_text(path: str | os.PathLike[str]) -> str:
    """The path's bytes as UTF-8; a byte that is no part of it is a surrogate."""
    text = os.fspath(path)
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # characters that the locale lacks, so it came from a text
        return text


def text_path(text: str) -> str:
    """The path that `path_text` gave as a text, as this process's locale has it."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def argument_bytes(text: str) -> bytes:
    """An argument of another program: a path, or a text."""
    return path_text(text).encode("utf-8", "surrogateescape")
