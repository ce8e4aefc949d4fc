"""`mobile-ft learn`: a night of learning from new rows."""

import argparse
from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.api.learn import learn
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path, print_table
from mobile_ft.runtime import learn_options


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "learn",
        help="learn from new rows, and adopt the result if it is better",
        description="Trains on the rows of --data that are new since the last call, and on older ones. Adopts the new "
        "version only if the loss of held-out rows fell significantly, and general text stayed within --general-bound.",
    )
    option = parser.add_argument
    option("state", metavar="STATE", type=Path, help="the learner's folder; the first night makes it")
    add_bundle(parser)
    option(
        "--data",
        metavar="DIR|FILE",
        type=Path,
        required=True,
        help="rows, in the forms that train takes, but no plain text",
    )
    add_options(parser, learn_options(), {"steps": ""})  # unset: --epochs has a default
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    result = learn(args.state, args.bundle, args.data, **given_options(args, learn_options()))
    write_json(args.json, result.to_json())
    print_table(*result.summary())
