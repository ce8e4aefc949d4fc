"""`mobile-ft generate`: answers one prompt."""

import argparse

from mobile_ft.api.model import load
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_options, given_options
from mobile_ft.runtime import generate_options


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("generate", help="answer one prompt")
    add_bundle(parser)
    add_adapter(parser, "none, the exported model")
    option = parser.add_argument
    option("--no-adapter", action="store_true", help="do not apply the adapter")
    option(
        "--prompt", metavar="TEXT", required=True, help="prompt; formatted with the model's chat template if it has one"
    )
    option("--system", metavar="TEXT", help="system prompt; needs a chat template")
    option("--stop", metavar="TEXT", action="append", default=[], help="stop at this text; may be repeated")
    add_options(parser, generate_options())
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    model = load(args.bundle, args.adapter)
    if args.no_adapter:
        model.use_adapter(None)
    options = given_options(args, generate_options())
    for piece in model.stream(args.prompt, system=args.system, stop=args.stop, **options):
        print(piece, end="", flush=True)
    print()
