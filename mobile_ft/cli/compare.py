"""`mobile-ft compare`: losses and answers of adapters on the same rows."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mobile_ft.api.compare import compare
from mobile_ft.api.files import check_output_path, write_json
from mobile_ft.cli.arguments import Subparsers, add_bundle, add_json
from mobile_ft.cli.output import check_json_path, print_table


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "compare",
        help="compare adapters on held-out rows",
        description="Computes the losses of the base model and of adapters on the same rows, and their answers.",
    )
    add_bundle(parser)
    option = parser.add_argument
    option("--data", metavar="DIR|FILE", type=Path, required=True, help="held-out rows, in the forms that train takes")
    option("--adapter", metavar="DIR", type=Path, action="append", required=True, help="PEFT adapter; may be repeated")
    option("--seq-len", metavar="N", type=int, help="tokens per row (default: 256)")
    option("--prompt", metavar="TEXT", action="append", default=[], help="question for all of them; may be repeated")
    option("--report", metavar="FILE", type=Path, help="write a page with losses, rows and answers to FILE as HTML")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    check_output_path("--report", args.report)
    result = compare(
        args.bundle, args.data, args.adapter, seq_len=args.seq_len, prompts=args.prompt, report=args.report
    )
    write_json(args.json, result.to_json())
    print_table(*result.summary())
    for prompt, answers in result.answers.items():
        table = Table(title=Text(prompt), title_justify="left")
        for name in result.names:
            table.add_column(Text(name), overflow="fold")
        table.add_row(*map(Text, answers))
        Console().print(table)
