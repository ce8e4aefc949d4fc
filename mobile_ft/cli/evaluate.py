"""`mobile-ft eval`: loss and perplexity on held-out data."""

import argparse
import tempfile
from pathlib import Path

from mobile_ft.bundle import read_bundle
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_data, add_json
from mobile_ft.cli.native import Event, run_native
from mobile_ft.cli.output import check_json_path, write_json
from mobile_ft.cli.progress import ProgressDisplay
from mobile_ft.cli.tokens import check_lengths, prepare_tokens
from mobile_ft.errors import UserError


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("eval", help="loss and perplexity on held-out data")
    add_bundle(parser)
    add_adapter(parser, "none, the model as it was exported")
    add_data(parser, "valid.jsonl")
    parser.add_argument(
        "--seq-len",
        metavar="N",
        type=int,
        help="tokens a sequence (default: 256, or less if the bundle's limit is)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    bundle = read_bundle(args.bundle)
    seq_len = min(256, bundle.max_seq_len) if args.seq_len is None else args.seq_len
    check_lengths(bundle, seq_len)
    check_json_path(args.json)
    done: Event = {}
    with tempfile.TemporaryDirectory(prefix="mobile-ft-") as folder:
        tokens = Path(folder) / "tokens.safetensors"
        stats = prepare_tokens(bundle, args.data, "valid", seq_len, 0, tokens)
        arguments = ["eval", str(bundle.folder), "--data", str(tokens)]
        if args.adapter is not None:
            arguments += ["--adapter", str(args.adapter)]
        with ProgressDisplay("sequence", stats.sequences) as display:

            def on_event(event: Event) -> None:
                if event["event"] == "progress":
                    display.update(event["done"])
                else:
                    done.update(event)

            run_native(arguments, on_event)
    result = {name: done[name] for name in ("loss", "ppl", "tokens")}
    if result["loss"] is None:  # JSON has no NaN
        raise UserError(f"{args.adapter or bundle.folder}: the loss is not finite")
    write_json(args.json, result)
    print(f"loss {result['loss']:.4f}  ppl {result['ppl']:.2f}  tokens {result['tokens']}")
