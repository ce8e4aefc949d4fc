"""Arguments that several commands share, and checks that argparse lacks."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder made by `mobile-ft export`")


def add_adapter(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--adapter", metavar="DIR", type=Path, help=f"PEFT adapter (default: {default})")


def add_data(parser: argparse.ArgumentParser, file: str) -> None:
    parser.add_argument(
        "--data",
        metavar="DIR|FILE",
        type=Path,
        required=True,
        help=f"folder with {file}, .jsonl or .txt file",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there too")


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type: an integer of at least `least` and at most `most`."""
    wanted = f"must be at least {least}" if most is None else f"must be {least} to {most}"

    def parse(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value}: {wanted}")
        return value

    parse.__name__ = "integer"  # argparse says "invalid integer value"
    return parse


def positive(text: str) -> float:
    """An argparse type: a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return value
