"""`mobile-ft convert`: converts a fine-tuned model for another program."""

import argparse
from pathlib import Path
from typing import get_args

from mobile_ft.api.convert import TARGETS, Quant, convert
from mobile_ft.api.results import megabytes
from mobile_ft.cli.arguments import Subparsers, add_bundle


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "convert", help="write the adapter, or the merged model, in the format of another program"
    )
    add_bundle(parser)
    option = parser.add_argument
    option("--adapter", metavar="DIR", type=Path, required=True, help="adapter folder, written by `mobile-ft train`")
    option(
        "--to",
        choices=TARGETS,
        required=True,
        help="output: an adapter (peft, gguf-lora, mlx), the merged model (hf, gguf, executorch), or both (onnx, "
        "onnx-training)",
    )
    option("--quant", choices=get_args(Quant), help="weight format of --to gguf, or nf4 for --to hf (default: f16)")
    option("-o", "--output", metavar="OUT", type=Path, required=True, help="file or folder to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    made = convert(args.bundle, args.adapter, args.output, to=args.to, quant=args.quant)
    print(f"{made.output}: {made.to} of {made.model}, {made.adapted} adapted weights, {megabytes(made.size)}")
