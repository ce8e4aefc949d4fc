"""`mobile-ft info`: describes a bundle or a model."""

import argparse
from pathlib import Path

from mobile_ft.api.files import write_json
from mobile_ft.api.info import info
from mobile_ft.cli.arguments import Subparsers, add_json, add_trust
from mobile_ft.cli.output import check_json_path, print_table
from mobile_ft.errors import UserError
from mobile_ft.runtime import instruction_set, instruction_sets


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("info", help="describe a bundle or a model")
    parser.add_argument(
        "model",
        metavar="BUNDLE|MODEL",
        type=Path,
        help="a bundle, or a model as `mobile-ft export` takes it; for a model, also shows the bundle formats of its "
        "weights and the memory of training",
    )
    add_trust(parser)
    parser.add_argument("--verify", action="store_true", help="verify the checksum of every file in the bundle")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    try:
        used = instruction_set()
    except ValueError as error:  # MFT_ISA names an instruction set that this machine does not have
        raise UserError(error) from None
    found = info(args.model, verify=args.verify)
    cpu = {"instruction_set": used, "instruction_sets": instruction_sets()}
    write_json(args.json, found.to_json() | cpu)
    print_table(*found.summary())
    print(f"instruction set of this machine: {used} (available: {', '.join(instruction_sets())})")
    if args.verify:
        print("all checksums match")
