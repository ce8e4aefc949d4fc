"""`mobile-ft train`: fine-tunes the LoRA adapter of a bundle."""

import argparse
from pathlib import Path
from typing import Any

from mobile_ft.api.auto_schedule import CHOSEN, RESOLVED
from mobile_ft.api.files import check_output_path, write_json
from mobile_ft.api.reporting import NAMES
from mobile_ft.api.run_file import read_run_file
from mobile_ft.api.train import saved_in_words, train
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_json, add_options, add_trust, given_options
from mobile_ft.cli.output import check_json_path, print_table, warn
from mobile_ft.runtime import train_options

_OUT = Path("mobile-ft-out")
# Pairs of options that exclude each other: one on the command line replaces the other one in --config.
_INSTEAD = {"steps": "epochs", "epochs": "steps", "warmup_steps": "warmup_ratio", "warmup_ratio": "warmup_steps"}


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("train", help="fine-tune a LoRA adapter")
    option = parser.add_argument
    option("bundle", metavar="BUNDLE", nargs="?", type=Path, help="bundle folder, written by `mobile-ft export`")
    add_trust(parser)
    option(
        "--data",
        metavar="DIR|FILE",
        type=Path,
        help="training data: a folder with train.jsonl, a file, or a data set on the Hugging Face hub",
    )
    option(
        "--valid",
        metavar="FILE",
        type=Path,
        help="validation data for --eval-every (default: valid.jsonl in the --data folder)",
    )
    option("--out", metavar="DIR", type=Path, help=f"output folder for the adapter and checkpoints (default: {_OUT})")
    option("--resume", action="store_true", help="resume from the checkpoint in --out")
    add_adapter(parser, "the bundle's own, untrained")
    option(
        "--config",
        metavar="run.yaml",
        type=Path,
        help="YAML file with options, in the format of the run.yaml that every run writes to --out; options on the "
        "command line take precedence",
    )
    option(
        "--report-to",
        metavar="NAME",
        action="append",
        default=[],
        help=f"log metrics to {', '.join(NAMES)}; may be repeated",
    )
    option(
        "--schedule-report",
        metavar="FILE",
        type=Path,
        help="write an HTML report of which layers were trained at each step to FILE",
    )
    option(
        "--auto-schedule",
        metavar="MINUTES",
        type=float,
        help="choose schedule and number of steps for a run of MINUTES within --budget",
    )
    add_options(parser, train_options())
    add_json(parser)
    parser.set_defaults(run=run, parser=parser)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    check_output_path("--schedule-report", args.schedule_report)
    settings = _settings(args)
    missing = [name for name, key in (("BUNDLE", "bundle"), ("--data", "data")) if key not in settings]
    if missing:
        args.parser.error(f"the following arguments are required: {', '.join(missing)}")
    settings = {"out": _OUT} | settings
    result = train(
        **settings,
        resume=args.resume,
        report_to=args.report_to,
        schedule_report=args.schedule_report,
        auto_schedule=args.auto_schedule,
    )
    write_json(args.json, result.to_json())
    interrupted = result.stopped == "interrupted"
    if interrupted:
        warn(f"interrupted; {saved_in_words(result.adapter)}")
    if result.losses:
        print_table(*result.summary())
    if interrupted:
        raise KeyboardInterrupt


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of --config, overridden by those of the command line."""
    paths = {name: getattr(args, name) for name in ("bundle", "data", "valid", "out", "adapter")}
    given = given_options(args, train_options()) | {name: path for name, path in paths.items() if path is not None}
    settings = {} if args.config is None else read_run_file(args.config)
    if args.auto_schedule is not None:  # chosen again
        settings = {name: value for name, value in settings.items() if name not in (*CHOSEN, *RESOLVED)}
    for name in given:
        settings.pop(_INSTEAD.get(name, name), None)
    return settings | given
