"""`mobile-ft bench`: measures prompts, answers and training steps on this machine."""

import argparse

from rich.console import Console
from rich.table import Table

from mobile_ft.api.bench import bench
from mobile_ft.api.files import write_json
from mobile_ft.api.options import step_options
from mobile_ft.api.results import BenchResult
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("bench", help="measure the speed of prompts, answers and training steps")
    add_bundle(parser)
    add_adapter(parser, "none, the exported model")
    option = parser.add_argument
    prompt_help = "tokens of each prompt, separated by commas (default: those of 32, 256 and 1024 that fit)"
    option("-p", "--n-prompt", metavar="N,N", type=_lengths, help=prompt_help)
    option("-n", "--n-gen", metavar="N", type=int, default=64, help="tokens of an answer (default: 64)")
    option("-r", "--repetitions", metavar="N", type=int, default=5, help="measurements of each (default: 5)")
    option("--kv-bits", metavar="N", type=int, default=0, help="as for generate")
    add_options(parser, step_options())
    add_json(parser)
    parser.set_defaults(run=run)


def _lengths(text: str) -> list[int]:
    return [int(length) for length in text.split(",")]


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    result = bench(
        args.bundle,
        adapter=args.adapter,
        n_prompt=args.n_prompt,
        n_gen=args.n_gen,
        repetitions=args.repetitions,
        kv_bits=args.kv_bits,
        **given_options(args, step_options()),
    )
    write_json(args.json, result.to_json())
    _print(result)


def _print(result: BenchResult) -> None:
    table = Table("what")
    for column in ("tokens/s", "seconds", "fastest", "slowest"):
        table.add_column(column, justify="right")
    for row in result.rows:
        times = (row.seconds, row.fastest, row.slowest)
        table.add_row(row.name, f"{row.tokens_per_second:.1f}", *(f"{seconds:.3f}" for seconds in times))
    Console().print(table)
