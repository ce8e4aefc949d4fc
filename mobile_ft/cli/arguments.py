"""Arguments that several commands share, and checks that argparse lacks."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from mobile_ft.hf_config import known_models

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# What decides over a step's memory and time, and so over the plan.
STEP_OPTIONS = (
    *("seq_len", "batch_size", "grad_accum", "schedule", "ratio", "selection", "suffix_depths"),
    *("backward", "optimizer", "max_grad_norm", "budget"),
)


def add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder made by `mobile-ft export`")


def add_bundle_or_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bundle",
        metavar="BUNDLE|config.json",
        type=Path,
        help=f"a bundle, or a config.json or one of {', '.join(known_models())}, which is exported with random weights "
        "first; of a model of billions of parameters that takes minutes and its size on disk",
    )


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


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Adds STEP_OPTIONS."""
    option = parser.add_argument
    option("--seq-len", metavar="N", type=int, default=256, help="tokens a sequence (default: 256)")
    option("--batch-size", metavar="N", type=int, default=1, help="sequences computed at once (default: 1)")
    option("--grad-accum", metavar="N", type=int, default=1, help="batches a step (default: 1)")
    option(
        "--schedule",
        choices=["full", "lcsb", "suffix"],
        default="full",
        help="layers that get a backward pass",
    )
    option("--ratio", metavar="SHARE", type=float, default=0.5, help="share of layers a step (default: 0.5)")
    option("--selection", choices=["contiguous", "strided", "random"], default="random", help="layers of lcsb")
    option("--suffix-depths", metavar="N,N", help="of suffix: top layers, step by step (default: around --ratio)")
    option(
        "--backward",
        choices=["auto", "store", "recompute"],
        default="auto",
        help="recompute activations, store them, or auto, the default: the fastest mix of both within the budget, "
        "recompute without one",
    )
    option(
        "--optimizer",
        choices=["adamw", "adamw8bit"],
        default="adamw",
        help="adamw8bit: moments in 8 bits, a quarter of the memory (default: adamw)",
    )
    option(
        "--max-grad-norm",
        metavar="NORM",
        type=float,
        default=1.0,
        help="clipping (default: 1); 0: none, which also saves the memory of all gradients at once",
    )
    option("--budget", metavar="SIZE", help="most memory, such as 512MB or 1GB (default: no limit)")


def native_arguments(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The options `names`, where they are given, as mft-run takes them; it checks their values too."""
    values = {name: getattr(args, name) for name in names}
    return [
        text
        for name, value in values.items()
        if value is not None
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]


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
