"""`mobile-ft convert`: a checked, clean copy of an adapter for other programs."""

import argparse
from pathlib import Path

from mobile_ft.api.convert import convert
from mobile_ft.cli.arguments import Subparsers, add_bundle


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("convert", help="write an adapter for other programs")
    add_bundle(parser)
    option = parser.add_argument
    option("--adapter", metavar="DIR", type=Path, required=True, help="folder that `mobile-ft train` wrote")
    option("--to", choices=["peft"], required=True)
    option("-o", "--output", metavar="OUT", type=Path, required=True, help="folder to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    made = convert(args.bundle, args.adapter, args.output, to=args.to)
    print(f"{made.adapter}: {made.tensors} tensors for {made.model}, rank {made.rank}")
