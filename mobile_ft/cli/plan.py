"""`mobile-ft plan`: plans the memory and step time of a training run."""

import argparse

from rich.console import Console
from rich.table import Table

from mobile_ft.api.device_estimate import known_devices
from mobile_ft.api.files import write_json
from mobile_ft.api.options import step_options
from mobile_ft.api.plan import plan
from mobile_ft.api.results import PlanResult, seconds, whole_megabytes
from mobile_ft.cli.arguments import Subparsers, add_bundle_to_plan, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path, print_table
from mobile_ft.errors import UserError


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("plan", help="plan the peak memory and step time of a training run")
    add_bundle_to_plan(parser)
    parser.add_argument(
        "--device",
        metavar="NAME",
        help=f"estimate the step time on this device: {', '.join(known_devices())}",
    )
    add_options(parser, step_options())
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    result = plan(args.bundle, device=args.device, **given_options(args, step_options()))
    write_json(args.json, result.to_json())
    _print_components(result)
    title, rows = result.summary()
    print_table(title, {name: value for name, value in rows.items() if name not in ("planned", "budget")})
    _print_savings(result)
    if not result.fits:
        raise UserError(
            f"--budget {args.budget} is too small: the smallest that works is "
            f"{whole_megabytes(result.smallest_budget_mb)} MB; raise it, or lower --seq-len or --batch-size"
        )


def _print_components(plan: PlanResult) -> None:
    batch, seq_len = plan.options["batch_size"], plan.options["seq_len"]
    tokens = seq_len if batch == "1" else f"{batch} x {seq_len}"
    table = Table(title=f"Memory of a {plan.options['schedule']} step at {tokens} tokens", title_justify="left")
    table.add_column("component")
    table.add_column("MB", justify="right")
    table.add_column("kind")
    for name, size in plan.components_mb.items():
        if size > 0:
            table.add_row(name, f"{size:.1f}", "anonymous" if name in plan.anonymous else "file")
    table.add_section()
    table.add_row("anonymous", f"{plan.planned_anon_mb:.1f}")
    budget = "" if plan.budget_mb is None else f"budget {plan.budget_mb:.0f} MB"
    table.add_row("total", f"{plan.planned_mb:.1f}", budget, style="bold" if plan.fits else "bold red")
    Console().print(table)


def _print_savings(plan: PlanResult) -> None:
    if not plan.savings:
        return
    table = Table(title="Options that save memory", title_justify="left")
    table.add_column("options")
    columns = ["step time", "total, MB", "smallest budget, MB"]
    if plan.budget_mb is not None:
        columns.append("longest sequence")
    for column in columns:
        table.add_column(column, justify="right")
    for row in [plan.to_json() | {"options": {}}, *plan.savings]:
        options = "\n".join(f"--{name.replace('_', '-')} {value}" for name, value in row["options"].items())
        sizes = [f"{row['planned_mb']:.0f}", str(whole_megabytes(row["smallest_budget_mb"]))]
        values = [seconds(row["step_seconds"]), *sizes, str(row["longest_seq_len"])]
        table.add_row(options or "current options", *values[: len(columns)])
    Console().print(table)
