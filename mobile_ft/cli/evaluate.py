"""`mobile-ft eval`: computes loss and perplexity on held-out data."""

import argparse
from pathlib import Path

from mobile_ft.api.evaluate import evaluate
from mobile_ft.api.files import write_json
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path
from mobile_ft.runtime import data_options


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("eval", help="loss and perplexity on held-out data")
    add_bundle(parser)
    add_adapter(parser, "none, the exported model")
    option = parser.add_argument
    data_help = "data to evaluate on: a folder with valid.jsonl, a file, or a data set on the Hugging Face hub"
    option("--data", metavar="DIR|FILE", type=Path, required=True, help=data_help)
    option("--seq-len", metavar="N", type=int, help="tokens per sequence (default: 256, or the bundle's limit)")
    add_options(parser, data_options())
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    options = given_options(args, data_options())
    result = evaluate(args.bundle, args.data, adapter=args.adapter, seq_len=args.seq_len, **options)
    write_json(args.json, result.to_json())
    print(f"loss {result.loss:.4f}  ppl {result.ppl:.2f}  tokens {result.tokens}")
