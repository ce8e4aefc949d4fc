"""Whatever a message quotes, it is one line that any terminal can show."""

import pickle

import pytest

from mobile_ft.errors import MobileFtWarning, UserError


@pytest.mark.parametrize("kind", [UserError, MobileFtWarning])
def test_messages_are_one_printable_line(kind: type[Exception]) -> None:
    assert str(kind("a.json: größe is 3 — no, 4")) == "a.json: größe is 3 — no, 4"
    assert str(kind("a\nb\r\x1b[2J\ud800\u202e\0")) == r"a\nb\r\x1b[2J\ud800\u202e\x00"
    assert str(kind(KeyError("a\nb"))) == r"'a\nb'"


def test_long_messages_keep_both_ends() -> None:
    text = str(UserError("a.json: name is " + "x" * 5_000_000 + "; it must be short"))
    assert len(text) < 1100 and text.startswith("a.json: name is x") and text.endswith("x; it must be short")
    assert " ... " in text


def test_errors_survive_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(UserError("a\nb")))) == r"a\nb"
