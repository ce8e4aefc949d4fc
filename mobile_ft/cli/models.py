"""`mobile-ft models`: lists the models and families that can be exported."""

import argparse
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from mobile_ft.api.files import write_json
from mobile_ft.api.models import Models, models
from mobile_ft.cli.arguments import Subparsers, add_json
from mobile_ft.cli.output import check_json_path


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "models",
        help="list models and families",
        description="Lists the models that `plan` and `export --random-init` know by name, the supported values of "
        "model_type in config.json, and what unsupported ones need.",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    found = models()
    write_json(args.json, asdict(found))
    console = Console()
    console.print(_known(found))
    console.print(_families(found))
    console.print(_missing(found))


def _known(found: Models) -> Table:
    table = Table(title="models known by name", title_justify="left")
    for name in ("name", "model_type"):
        table.add_column(name, no_wrap=True)
    for name in ("M", "context", "memory, MB", "least, MB"):
        table.add_column(name, justify="right")
    for model in found.known:
        sizes = (f"{model.parameters / 1e6:,.0f}", f"{model.max_tokens // 1024} K")
        memory = (f"{model.planned_mb:,}", f"{model.smallest_budget_mb:,}")
        table.add_row(model.name, model.model_type, *sizes, *memory)
    table.caption = (
        "M: million parameters. Memory: of a step of 256 tokens with the default options. Least: the smallest --budget "
        "for it. `mobile-ft plan NAME` has it for other options, and estimates the time of a step on this machine."
    )
    table.caption_justify = "left"
    return table


def _families(found: Models) -> Table:
    table = Table("model_type", "also inside", "GGUF architecture", title="supported families", title_justify="left")
    for name, inside in found.families.items():
        table.add_row(name, ", ".join(inside), ", ".join(found.gguf[name]))
    table.caption = "All are read from Hugging Face folders."
    table.caption_justify = "left"
    return table


def _missing(found: Models) -> Table:
    table = Table("model_type", "needs", title="not supported", title_justify="left")
    for name, needs in found.missing.items():
        table.add_row(name, needs)
    return table
