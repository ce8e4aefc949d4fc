"""`mobile-ft generate`: answers one prompt."""

import argparse

from mobile_ft.api.model import load
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_options, given_options
from mobile_ft.runtime import generate_options


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("generate", help="answer one prompt")
    add_bundle(parser)
    add_adapter(parser, "none, the model as it was exported")
    option = parser.add_argument
    option("--no-adapter", action="store_true", help="answer without the adapter, to compare")
    option("--prompt", metavar="TEXT", required=True, help="put into the model's chat template if any")
    option("--system", metavar="TEXT", help="system prompt, of models with a chat template")
    option("--stop", metavar="TEXT", action="append", default=[], help="text that ends the answer; may be repeated")
    add_options(parser, generate_options())
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    model = load(args.bundle, args.adapter)
    if args.no_adapter:
        model.use_adapter(False)
    options = given_options(args, generate_options())
    for piece in model.stream(args.prompt, system=args.system, stop=args.stop, **options):
        print(piece, end="", flush=True)
    print()
