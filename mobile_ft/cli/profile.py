"""`mobile-ft profile`: runs a few training steps under a memory limit and compares measured memory with the plan."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mobile_ft.api.files import check_output_path, write_json
from mobile_ft.api.options import step_options
from mobile_ft.api.profile import profile_run
from mobile_ft.api.results import ProfileResult
from mobile_ft.cli.arguments import Subparsers, add_bundle_or_config, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path, print_table
from mobile_ft.errors import UserError


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "profile",
        help="run a few steps under a memory limit and compare measured memory with the plan",
        description="Trains a few steps on random tokens. The kernel limits the process to --budget, by a "
        "memory cgroup if possible, else by RLIMIT_DATA. Without --budget, memory is only measured.",
    )
    add_bundle_or_config(parser)
    parser.add_argument("--steps", metavar="N", type=int, default=3, help="optimizer steps (default: 3)")
    add_options(parser, step_options())
    parser.add_argument(
        "--report", metavar="FILE", type=Path, help="write an HTML report with a memory timeline to FILE"
    )
    parser.add_argument("--trace-out", metavar="FILE", type=Path, help="write a trace for ui.perfetto.dev to FILE")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    check_output_path("--report", args.report)
    check_output_path("--trace-out", args.trace_out)
    files = {"report": args.report, "trace_out": args.trace_out}
    result = profile_run(args.bundle, steps=args.steps, **files, **given_options(args, step_options()))
    write_json(args.json, result.to_json())
    _print_components(result)
    print_table(*result.summary())
    if not result.survived:
        raise UserError(
            f"the limit of {result.budget_mb:.0f} MB ended the training process in step {result.steps + 1}; the plan "
            f"needs {result.planned_total_mb:.0f} MB ({result.failure})"
        )


def _print_components(result: ProfileResult) -> None:
    table = Table(title="Planned and measured memory, MB", title_justify="left")
    table.add_column("component")
    for column in ("planned", "measured"):
        table.add_column(column, justify="right")
    for name, planned in result.planned_mb.items():
        measured = result.measured_mb[name]
        if planned or measured:
            table.add_row(name, f"{planned:.1f}", f"{measured:.1f}", style="yellow" if measured > planned else "")
    table.add_section()
    table.add_row("anonymous", f"{result.planned_anon_mb:.1f}", f"{result.peak_anon_mb:.1f}")
    table.add_row("total", f"{result.planned_total_mb:.1f}", f"{result.peak_rss_mb:.1f}", style="bold")
    Console().print(table)
