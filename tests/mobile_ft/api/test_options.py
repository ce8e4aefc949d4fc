import argparse
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mobile_ft.api.options import option_texts, train_settings, value_of
from mobile_ft.cli.arguments import add_options, given_options
from mobile_ft.errors import UserError
from mobile_ft.runtime import generate_options, train_options


def option(
    name: str,
    type: str = "text",
    default: str = "",
    choices: Sequence[str] = (),
    metavar: str = "X",
    help: str = "what it does",
    group: str = "run",
) -> Any:
    values = {"name": name, "type": type, "default": default, "choices": list(choices), "metavar": metavar}
    return SimpleNamespace(**values, help=help, group=group)


OPTIONS = [
    option("seq_len", "integer", "256", metavar="N", help="tokens, at most 100 % of what fits"),
    option("schedule", "choice", "full", ["full", "suffix"], metavar=""),
    option("suffix_depths", "integers", metavar="N,N"),
]


def test_values_become_text() -> None:
    given = {"seq_len": 64, "schedule": None, "suffix_depths": [1, 2]}
    assert option_texts(OPTIONS, given) == {"seq_len": "64", "suffix_depths": "1,2"}


@pytest.mark.parametrize("value", ["\ud800", "a\0", ["1", "\udcff"]])
def test_texts_that_the_runtime_cannot_be_told(value: str | list[str]) -> None:
    """Which are bad casts, or no arguments of a process."""
    with pytest.raises(UserError, match=r"^suffix_depths: '.*' is not valid UTF-8 text$"):
        option_texts(OPTIONS, {"suffix_depths": value})


def test_unknown_name_lists_what_is_close() -> None:
    with pytest.raises(UserError, match=r"^seqlen: unknown option; did you mean seq_len"):
        option_texts(OPTIONS, {"seqlen": 64})
    with pytest.raises(UserError, match="^zzz: unknown option; known: seq_len, schedule, suffix_depths$"):
        option_texts(OPTIONS, {"zzz": 1})


def test_command_line_is_built_from_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="tool")
    add_options(parser, OPTIONS)
    assert given_options(parser.parse_args([]), OPTIONS) == {}
    given = given_options(parser.parse_args(["--seq-len", "many", "--suffix-depths", "1,2"]), OPTIONS)
    assert given == {"seq_len": "many", "suffix_depths": "1,2"}  # the runtime says what is wrong with it
    with pytest.raises(SystemExit):
        parser.parse_args(["--schedule", "half"])
    assert "full" in capsys.readouterr().err
    help = " ".join(parser.format_help().split())
    assert "--seq-len N tokens, at most 100 % of what fits (default: 256)" in help
    assert "--schedule {full,suffix}" in help
    assert "--suffix-depths N,N what it does" in help


# What a run resolves and records, which --help does not list.
RESOLVED = {"stored_units", "mlp_tokens", "arithmetic"}


def test_the_runtimes_own_options_are_complete() -> None:
    settings = train_settings({"lr": "1e-3", "suffix_depths": "1,2"})
    assert (settings["lr"], settings["suffix_depths"], settings["seq_len"]) == ("0.001", "1,2", "256")
    for known in (train_options(), generate_options()):
        assert all(option.metavar or option.choices for option in known)
        assert {option.name for option in known if not option.help} <= RESOLVED
        for entry in known:
            value_of(entry, entry.default)
    with pytest.raises(UserError, match="^lr fast: must be a number or auto$"):
        train_settings({"lr": "fast"})
