"""`mobile-ft versions`: lists a learner's versions and nights."""

import argparse
from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.api.learn import versions
from mobile_ft.cli.arguments import Subparsers, add_json
from mobile_ft.cli.output import check_json_path, print_table


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("versions", help="list a learner's versions, or return to one")
    parser.add_argument("state", metavar="STATE", type=Path, help="the learner's folder")
    parser.add_argument("--rollback", metavar="N", type=int, help="make version N the current one; 0: the base model")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    result = versions(args.state, roll_back=args.rollback)
    write_json(args.json, result.to_json())
    print_table(*result.summary())
