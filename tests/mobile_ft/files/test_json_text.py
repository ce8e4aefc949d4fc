"""JSON that may have been made to harm."""

import json
from pathlib import Path

import pytest

from mobile_ft.errors import UserError
from mobile_ft.files.json_text import parse_json, read_json_object


def test_depth() -> None:
    assert parse_json("[" * 64 + "]" * 64)
    with pytest.raises(ValueError, match="brackets nested deeper than 64"):
        parse_json("[" * 65 + "]" * 65)
    with pytest.raises(ValueError, match="deeper"):
        parse_json('{"a":' * 65 + "1" + "}" * 65)


def test_brackets_in_strings_do_not_count() -> None:
    value = [{"a": '[{,"\\' * 100, '"[': "]" * 100}] * 100
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("part", ["[],", "1,", '{"":0},', "[1],"])
def test_very_many_values(part: str) -> None:
    """Some 60 bytes of memory each."""
    with pytest.raises(ValueError, match="more than 2097152 strings, brackets and commas"):
        parse_json(f"[{part * 3_000_000}1]")


@pytest.mark.parametrize("text", ["", "[", "]" * 100, "[}" * 100, '"' + "\\" * 99, "[" * 60 + '"', "9" * 5000, "nul"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, message in [
        (None, "no such file; give one"),
        (b"{", "not JSON (Expecting property name"),
        (b'{"a": "\xff"}', "not JSON ('utf-8' codec can't decode byte 0xff"),
        (b"[" * 10_000_000, "not JSON (brackets nested deeper than 64"),
        (b"[1]", "must be a JSON object, not a list; give one"),
    ]:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError) as error:
            read_json_object(path, "give one")
        assert str(error.value).startswith(f"{path}: {message}")
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a hole, as large as any disk
    with pytest.raises(UserError, match="1099511627776 bytes, but at most 67108864 are supported; give one"):
        read_json_object(path, "give one")
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json_object(path, "") == {"a": 1}
