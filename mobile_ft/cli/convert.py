"""`mobile-ft convert`: a checked, clean copy of an adapter for other programs."""

import argparse
import shutil
import tempfile
from pathlib import Path

from mobile_ft.bundle import read_bundle
from mobile_ft.cli.adapter import read_matching_tensors
from mobile_ft.cli.arguments import Subparsers, add_bundle
from mobile_ft.cli.output import writing
from mobile_ft.errors import UserError
from mobile_ft.folder import replace_folder
from mobile_ft.lora import CONFIG_FILE, WEIGHTS_FILE, write_adapter


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("convert", help="write an adapter for other programs")
    add_bundle(parser)
    option = parser.add_argument
    option("--adapter", metavar="DIR", type=Path, required=True, help="folder that `mobile-ft train` wrote")
    option("--to", choices=["peft"], required=True)
    option("-o", "--output", metavar="OUT", type=Path, required=True, help="folder to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    bundle = read_bundle(args.bundle)
    tensors = read_matching_tensors(args.adapter, bundle)
    out: Path = args.output
    _check_replaceable(out)
    with writing(out):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
        try:
            write_adapter(scratch, bundle.lora, bundle.model.name, tensors)
            for file in scratch.iterdir():
                file.chmod(0o644)
            replace_folder(scratch, out.resolve())
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{out}: {len(tensors)} tensors for {bundle.model.name}, rank {bundle.lora.rank}")


def _check_replaceable(out: Path) -> None:
    """Raises UserError where `out` holds anything that the new adapter would not replace."""
    if not out.exists():
        return
    if not out.is_dir() or {file.name for file in out.iterdir()} - {WEIGHTS_FILE, CONFIG_FILE}:
        raise UserError(f"{out}: exists and holds more than an adapter; choose another folder for -o")
