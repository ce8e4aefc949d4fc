"""`mobile-ft forget`: removes rows from a learner, and what it learned from them."""

import argparse
from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.api.learn import forget
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_json
from mobile_ft.cli.output import check_json_path, print_table


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "forget",
        help="remove rows from a learner, and what it learned from them",
        description="Removes rows from a learner's folder. If the current version was trained on them, repeats the "
        "nights since the last version that was not.",
    )
    parser.add_argument("state", metavar="STATE", type=Path, help="the learner's folder")
    add_bundle(parser)
    parser.add_argument("ids", metavar="ID", nargs="+", help="a row's id, as rows-*.jsonl in the folder has it")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    result = forget(args.state, args.bundle, args.ids)
    write_json(args.json, result.to_json())
    print_table(*result.summary())
