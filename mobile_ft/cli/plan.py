"""`mobile-ft plan`: the memory of a training run, before it is run."""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from mobile_ft.bundle import Bundle
from mobile_ft.cli.arguments import (
    STEP_OPTIONS,
    Subparsers,
    add_bundle_or_config,
    add_json,
    add_step_options,
    native_arguments,
)
from mobile_ft.cli.export import bundle_or_config
from mobile_ft.cli.native import Event, run_native
from mobile_ft.cli.output import check_json_path, print_table, write_json
from mobile_ft.cli.tokens import check_lengths
from mobile_ft.errors import UserError

# What a user could change to save memory.
_SAVINGS: list[dict[str, Any]] = [
    {"optimizer": "adamw8bit"},
    {"max_grad_norm": 0},
    {"schedule": "lcsb", "ratio": 0.5},
]
_SAVED = ("planned_mb", "smallest_budget_mb", "longest_seq_len")


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("plan", help="the memory that training will take, and what would save some")
    add_bundle_or_config(parser)
    add_step_options(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    with bundle_or_config(args.bundle, args.seq_len * args.batch_size) as bundle:
        check_lengths(bundle, args.seq_len, args.batch_size)
        plan = native_plan(bundle, native_arguments(args, STEP_OPTIONS))
        savings = _savings(args, bundle)
    write_json(args.json, plan | {"savings": savings})
    _print_components(args, plan)
    _print_facts(bundle, plan)
    _print_savings(plan, savings)
    if not fits(plan):
        raise UserError(
            f"--budget {args.budget} is too small: the smallest that works is {whole_megabytes(plan)} MB; raise it, "
            "or lower --seq-len, --batch-size or --ratio"
        )


def native_plan(bundle: Bundle, options: Sequence[str]) -> dict[str, Any]:
    """What `mft-run plan` says for these options; sizes in megabytes."""
    plan: dict[str, Any] = {}

    def on_event(event: Event) -> None:
        plan.update(event)

    run_native(["plan", str(bundle.folder), *options], on_event)
    del plan["event"]
    return plan


def fits(plan: dict[str, Any]) -> bool:
    return plan["budget_mb"] is None or plan["planned_mb"] <= plan["budget_mb"]


def whole_megabytes(plan: dict[str, Any]) -> int:
    """The smallest budget that works; 1 MB on top, as code and heap are not the same to the page in every process."""
    return math.ceil(plan["smallest_budget_mb"]) + 1


def mix_in_words(plan: dict[str, Any]) -> str:
    """How the units that get a backward go about it."""
    stored = plan["stored_attn"] + plan["stored_mlp"]
    parts = []
    if stored:
        parts.append(f"activations of {plan['stored_attn']} attention and {plan['stored_mlp']} MLP units stored")
    if plan["checkpoints"]:
        parts.append(f"inputs of {plan['checkpoints']} units kept in memory")
    if plan["spilled"]:
        parts.append(f"inputs of {plan['spilled']} units spilled to a file")
    if plan["resident_units"]:
        parts.append(f"weights of {plan['resident_units']} units stay mapped")
    return ", ".join(parts)


def _savings(args: argparse.Namespace, bundle: Bundle) -> list[dict[str, Any]]:
    """Plans with each option that saves memory, and with all of them together."""
    changes = []
    for change in _SAVINGS:
        if "max_grad_norm" in change and args.grad_accum > 1:
            continue  # batches are added up, so all gradients have to be there anyway
        if "schedule" in change and args.schedule != "full":
            continue
        if any(getattr(args, name) != value for name, value in change.items()):
            changes.append(change)
    if len(changes) > 1:
        changes.append({name: value for change in changes for name, value in change.items()})
    rows = []
    for change in changes:
        changed = argparse.Namespace(**(vars(args) | change))
        plan = native_plan(bundle, native_arguments(changed, STEP_OPTIONS))
        rows.append({"options": change} | {name: plan[name] for name in _SAVED})
    return rows


def _print_components(args: argparse.Namespace, plan: dict[str, Any]) -> None:
    tokens = f"{args.batch_size} x {args.seq_len}" if args.batch_size > 1 else str(args.seq_len)
    table = Table(title=f"Memory of a step of {args.schedule} at {tokens} tokens", title_justify="left")
    table.add_column("component")
    table.add_column("MB", justify="right")
    table.add_column("kind")
    for name, size in plan["components_mb"].items():
        if size > 0:
            table.add_row(name, f"{size:.1f}", "anonymous" if name in plan["anonymous"] else "file")
    table.add_section()
    table.add_row("anonymous", f"{plan['planned_anon_mb']:.1f}")
    budget = "" if plan["budget_mb"] is None else f"of {plan['budget_mb']:.0f} MB budget"
    table.add_row("total", f"{plan['planned_mb']:.1f}", budget, style="bold" if fits(plan) else "bold red")
    Console().print(table)


def _print_facts(bundle: Bundle, plan: dict[str, Any]) -> None:
    longest = plan["longest_seq_len"]
    limit = ", all that the bundle was made for" if longest == bundle.max_seq_len else ""
    facts = {
        "backward": mix_in_words(plan),
        "expected time": f"{plan['relative_time']:.2f} times that of a step that stores everything",
        "smallest budget": f"{whole_megabytes(plan)} MB",
    }
    if plan["budget_mb"] is not None:
        facts["longest sequence"] = f"{longest} tokens{limit}" if longest else "none fits"
    print_table("Plan", facts)


def _print_savings(plan: dict[str, Any], savings: list[dict[str, Any]]) -> None:
    if not savings:
        return
    table = Table(title="What would save memory", title_justify="left")
    table.add_column("options")
    columns = ["total, MB", "smallest budget, MB"] + (["longest sequence"] if plan["budget_mb"] is not None else [])
    for column in columns:
        table.add_column(column, justify="right")
    for row in [{"options": {}} | plan, *savings]:
        options = "\n".join(f"--{name.replace('_', '-')} {value}" for name, value in row["options"].items())
        values = [f"{row['planned_mb']:.0f}", str(whole_megabytes(row)), str(row["longest_seq_len"])]
        table.add_row(options or "as given", *values[: len(columns)])
    Console().print(table)
