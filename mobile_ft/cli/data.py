"""`mobile-ft data`: shows the training data as the model will see it."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mobile_ft.api.data import ON_BAD_ROW, histogram, inspect_data
from mobile_ft.api.files import check_output_path, write_json
from mobile_ft.cli.arguments import Subparsers, add_json, add_options, add_trust, given_options
from mobile_ft.cli.output import check_json_path, print_table, warn
from mobile_ft.data.prepare import LOSSES
from mobile_ft.data.row_view import RowView
from mobile_ft.runtime import data_options

_WIDTH = 40  # characters of the longest bar


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "data",
        help="show the training data as the model will see it",
        description="Prints rows as text with the trained tokens marked, a length histogram, and the rows that are "
        "truncated, dropped, malformed or duplicated.",
    )
    option = parser.add_argument
    option("model", metavar="BUNDLE|MODEL", help="a bundle, or a model as `mobile-ft export` takes it")
    add_trust(parser)
    option("--data", metavar="DIR|FILE|NAME", required=True, help="training data, as for `mobile-ft train`")
    option("--valid", metavar="DIR|FILE|NAME", help="validation data (default: the split of --data)")
    option("--seq-len", metavar="N", type=int, help="tokens per sequence (default: 256, or the bundle's limit)")
    option("--loss", choices=LOSSES, default="sft", help="loss that the data is for (default: sft)")
    option("--rows", metavar="N", type=int, default=3, help="rows to show per split (default: 3)")
    option("--report", metavar="FILE", type=Path, help="also write an HTML report to FILE")
    add_options(parser, data_options(), {"on_bad_row": ON_BAD_ROW})
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    check_output_path("--report", args.report)
    report = inspect_data(
        args.model,
        args.data,
        valid=args.valid,
        seq_len=args.seq_len,
        loss=args.loss,
        rows=args.rows,
        report=args.report,
        **given_options(args, data_options()),
    )
    write_json(args.json, report.to_json())
    console = Console()
    for name, split in report.splits.items():
        for row in split.first_rows:
            _print_row(console, row)
        _print_histogram(console, f"{name}: rows by length in tokens", split.lengths)
        for bad in split.bad_rows:
            warn(bad)
    for where in report.in_both:
        warn(f"{where}: this row of valid is also in train")
    print_table(*report.summary())


def _print_row(console: Console, row: RowView) -> None:
    """Prints learned tokens in green, or in brackets without color, and truncated ones struck out, or left out."""
    head = f"{row.where}: {row.form}, {row.learned} of {row.tokens} tokens learned"
    console.print(Text(head, style="dim"), soft_wrap=True)
    coloured = console.color_system is not None
    for side in row.sides:
        text = Text()
        for run in side:
            if coloured:
                style = " ".join(word for word, on in (("green", run.learned), ("strike", run.cut)) if on)
                text.append(run.text, style=style)
            elif not run.cut:
                text.append(f"[[{run.text}]]" if run.learned else run.text)
        if not coloured and any(run.cut for run in side):
            text.append("[truncated here]")
        console.print(text, soft_wrap=True)
    console.print()


def _print_histogram(console: Console, title: str, lengths: list[int]) -> None:
    bins = histogram(lengths)
    if not bins:
        return
    most = max(count for _, _, count in bins)
    console.print(title, highlight=False)
    for start, end, count in bins:
        bar = "█" * -(-_WIDTH * count // most) if count else ""
        console.print(f"{start:>7} to {end - 1:<7}{bar} {count}", highlight=False)
