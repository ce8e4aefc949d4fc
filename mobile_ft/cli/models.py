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
    table = Table("name", "model_type", title="models known by name", title_justify="left")
    table.add_column("parameters", justify="right")
    table.add_column("context", justify="right")
    for model in found.known:
        table.add_row(model.name, model.model_type, f"{model.parameters / 1e6:,.0f} M", f"{model.max_tokens:,}")
    return table


def _families(found: Models) -> Table:
    table = Table("model_type", "also inside", title="supported families", title_justify="left")
    for name, inside in found.families.items():
        table.add_row(name, ", ".join(inside))
    return table


def _missing(found: Models) -> Table:
    table = Table("model_type", "needs", title="not supported", title_justify="left")
    for name, needs in found.missing.items():
        table.add_row(name, needs)
    return table
