"""A checked, clean copy of an adapter for other programs."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.api.files import writing
from mobile_ft.api.results import ConvertResult
from mobile_ft.bundle import read_bundle
from mobile_ft.errors import UserError
from mobile_ft.folder import replace_folder
from mobile_ft.lora import CONFIG_FILE, WEIGHTS_FILE, write_adapter


def convert(
    bundle: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: Literal["peft"] = "peft",
) -> ConvertResult:
    """Writes the adapter in the folder `adapter`, as `train` leaves it, to the folder `out`, for PEFT to load.

    Raises UserError where the adapter is not one of this bundle, or `out` holds anything that is not an adapter.
    """
    if to != "peft":
        raise UserError(f"to {to}: must be peft")
    found, target = read_bundle(Path(bundle)), Path(out)
    tensors = read_matching_tensors(Path(adapter), found)
    _check_replaceable(target)
    with writing(target):
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
        try:
            write_adapter(scratch, found.lora, found.model.name, tensors)
            for file in scratch.iterdir():
                file.chmod(0o644)
            replace_folder(scratch, target.resolve())
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return ConvertResult(target, found.model.name, found.lora.rank, len(tensors))


def _check_replaceable(out: Path) -> None:
    """Raises UserError where `out` holds anything that the new adapter would not replace."""
    if not out.exists():
        return
    if not out.is_dir() or {file.name for file in out.iterdir()} - {WEIGHTS_FILE, CONFIG_FILE}:
        raise UserError(f"{out}: exists and holds more than an adapter; choose another folder for -o")
