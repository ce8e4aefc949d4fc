"""Generates the reference of the command line from its parsers, and of the runtime's options from its tables."""

import argparse
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from mobile_ft.cli.main import command_parser
from mobile_ft.runtime import Option, generate_options, own_learn_options, train_options
from mobile_ft.runtime import data_options as of_data

_USAGE: Any = {"subsequent_indent": "    ", "break_long_words": False, "break_on_hyphens": False}


def commands() -> str:
    """Returns a section for every command."""
    return "\n".join(_section(name, parser) for name, parser in _commands(command_parser(), "mobile-ft"))


def training_options(group: str) -> str:
    """Returns the options that affect a step and its memory ("step") or the whole run ("run"), without data options."""
    data = {option.name for option in of_data()}
    return _table(option for option in train_options() if option.group == group and option.name not in data)


def data_options() -> str:
    return _table(of_data())


def learning_options() -> str:
    return _table(own_learn_options())


def generation_options() -> str:
    data = {option.name for option in of_data()}
    return _table(option for option in generate_options() if option.name not in data)


def _commands(parser: argparse.ArgumentParser, name: str) -> list[tuple[str, argparse.ArgumentParser]]:
    """Returns all commands of the parser without subcommands."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for word, below in action.choices.items():
                about = (helps[word], below.description)
                below.description = " ".join(_sentence(text) for text in about if text)
                found += _commands(below, f"{name} {word}")
    return found or [(name, parser)]


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    known = {flag for action in parser._actions for flag in action.option_strings}
    taken = {group: flags for group, flags in _option_groups().items() if known >= flags}
    shared = set().union(*taken.values())
    own = [action for action in parser._actions if not {*action.option_strings} & {"--help", *shared}]
    lines = [f"## {name}", "", _sentence(str(parser.description)), ""]
    lines += ["```text", _usage(name, parser, own, bool(taken)), "```", ""]
    lines += _narrow("| argument | meaning | default |", [_row(action) for action in own])
    links = [f"[{group} options](options.md#{group}-options)" for group in taken]
    if links:
        lines += [f"It also takes the {', '.join(links[:-1])}{' and ' if links[:-1] else ''}{links[-1]}.", ""]
    return "\n".join(lines)


def _option_groups() -> dict[str, set[str]]:
    """Returns the options of each table of options.md."""
    data = {option.name for option in of_data()}
    groups: dict[str, set[str]] = {name: set() for name in ("step", "run", "data", "learning", "generation")}
    for option in train_options():
        groups["data" if option.name in data else option.group].add(_flag(option))
    groups["learning"] = {_flag(option) for option in own_learn_options()}
    groups["generation"] = {_flag(option) for option in generate_options() if option.name not in data}
    return groups


def _usage(name: str, parser: argparse.ArgumentParser, actions: Iterable[argparse.Action], more: bool) -> str:
    words, optional = [name], more
    one_of = {
        action.dest: group
        for group in parser._mutually_exclusive_groups
        if group.required
        for action in group._group_actions
    }
    for action in actions:
        if not action.option_strings:
            words.append(f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar))
    for action in actions:
        if action.dest in one_of:
            group = one_of[action.dest]._group_actions
            if action is group[0]:
                words.append(f"({' | '.join(_with_value(member) for member in group)})")
        elif action.option_strings and action.required:
            words.append(_with_value(action))
        elif action.option_strings:
            optional = True
    return textwrap.fill(" ".join(words) + (" [options]" if optional else ""), 90, **_USAGE)


def _with_value(action: argparse.Action) -> str:
    value = action.metavar or "|".join(action.choices or ())
    return f"{action.option_strings[0]} {f'[{value}]' if action.nargs == '?' else value}"


def _row(action: argparse.Action) -> str:
    text, default = _split_default(str(action.help or "").replace("%%", "%"))
    if not action.option_strings:
        name = str(action.metavar)
    else:
        value = "" if action.nargs == 0 else f" {action.metavar or ''}".rstrip()
        name = ", ".join(action.option_strings) + value
    if action.required and action.option_strings:
        default = "required"
    return f"| {_code(name)} | {_cell(text)}{_one_of(action.choices)} | {_cell(default)} |"


def _table(options: Iterable[Option]) -> str:
    lines = []
    for option in options:
        if not option.help:  # resolved by a run, only in run.yaml
            continue
        name = _flag(option)
        if option.type == "flag":
            name = f"{name}, --no-{name[2:]}" if option.default == "true" else name
        elif not option.choices:
            name += f" {option.metavar}"
        lines.append(f"| {_code(name)} | {_cell(option.help)}{_one_of(option.choices)} | {_cell(option.default)} |")
    return "\n".join(_narrow("| option | meaning | default |", lines))


def _narrow(head: str, rows: list[str]) -> list[str]:
    """Returns a table whose second column stays readable on a phone."""
    return ['<div class="options" markdown>', "", head, "|---|---|---|", *rows, "", "</div>", ""]


def _one_of(choices: Iterable[str] | None) -> str:
    return f"<br>One of {', '.join(f'`{name}`' for name in choices)}" if choices else ""


def _flag(option: Option) -> str:
    return f"--{option.name.replace('_', '-')}"


def _split_default(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?) ?\(default: (.*)\)", text, re.DOTALL)
    return (match[1], match[2]) if match else (text, "")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _code(name: str) -> str:
    """Formats each word separately, so that a narrow table can break between them."""
    return ", ".join(f"`{part}`" for part in name.split(", ")).replace("|", "\\|")


def _cell(text: str) -> str:
    named = re.sub(r"(?<![\w`-])--[a-z][\w-]*", r"`\g<0>`", text)
    return named.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
