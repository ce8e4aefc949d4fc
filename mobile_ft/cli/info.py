"""`mobile-ft info`: what is in a bundle."""

import argparse

from mobile_ft.api.files import write_json
from mobile_ft.api.info import info
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_json
from mobile_ft.cli.output import check_json_path, print_table


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("info", help="show what is in a bundle, and check it")
    add_bundle(parser)
    parser.add_argument("--verify", action="store_true", help="read every file and check it against its checksum")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    found = info(args.bundle, verify=args.verify)
    write_json(args.json, found.to_json())
    print_table(*found.summary())
    if args.verify:
        print("every file is as it was written")
