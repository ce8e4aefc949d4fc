"""Converts a fine-tuned model for other programs: the adapter, or the model with the merged adapter."""

import os
import shutil
import tempfile
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from mobile_ft.api.adapter import read_matching_tensors
from mobile_ft.api.files import writing
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import ConvertResult
from mobile_ft.bundle.description import read_bundle
from mobile_ft.converters.fine_tuned import FineTuned
from mobile_ft.errors import UserError, not_installed
from mobile_ft.files.folder import replace_file, replace_folder

Target = Literal["peft", "gguf-lora", "mlx", "hf", "gguf", "onnx", "onnx-training", "executorch"]
TARGETS: tuple[Target, ...] = get_args(Target)
Quant = Literal["f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "nf4"]
QUANTS: dict[Target, tuple[Quant, ...]] = {"gguf": ("f16", "q8_0", "q4_0", "q4_1", "iq4_nl"), "hf": ("f16", "nf4")}


def convert(
    bundle: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    to: Target = "peft",
    quant: Quant | None = None,
    progress: bool = True,
) -> ConvertResult:
    """Writes an adapter, or the bundle's model with the adapter, for another program.

    Args:
        bundle: The bundle that the adapter was trained with.
        adapter: Folder of the adapter, written by `train`.
        out: File or folder to write, depending on the target. An older output is replaced after everything is written.
        to: Target program; see docs/reference/convert.md.
        quant: Format of merged weights, for the targets gguf and hf. Default: f16.
        progress: Show progress.

    Raises:
        UserError: The adapter does not fit the bundle, the target does not support the model, or `out` contains other
            files.
    """
    if to not in TARGETS:
        raise UserError(f"to {to}: must be one of {', '.join(TARGETS)}")
    if quant is not None and quant not in QUANTS.get(to, ()):
        known = "; ".join(f"{', '.join(quants)} to {target}" for target, quants in QUANTS.items())
        raise UserError(f"quant {quant} to {to}: must be one of {known}")
    found, target = read_bundle(Path(bundle)), Path(out)
    converter = _converter(to)
    tensors = read_matching_tensors(Path(adapter), found)
    _check_replaceable(target, converter.FILES)
    with ProgressDisplay("tensor", progress) as display:
        read = 0

        def on_tensor() -> None:
            nonlocal read
            read += 1
            display.update(read)

        model = FineTuned(found, tensors, on_tensor)
        display.start(len(model.shapes))
        with writing(target):
            target.absolute().parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
            try:
                made = scratch if converter.FILES else scratch / target.name
                converter.write(model, made, *([quant or "f16"] if to in QUANTS else []))
                files = list(scratch.iterdir())
                for file in files:
                    file.chmod(0o644)
                size = sum(file.stat().st_size for file in files)
                (replace_folder if converter.FILES else replace_file)(made, target.resolve())
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return ConvertResult(target, to, found.model.name, len(model.low_ranks), size)


def _converter(to: str) -> Any:
    try:
        return import_module(f"mobile_ft.converters.{to.replace('-', '_')}")
    except ModuleNotFoundError as error:
        raise not_installed(error.name or "a package", f"to {to}") from error


def _check_replaceable(out: Path, patterns: tuple[str, ...] | None) -> None:
    """Raises UserError if `out` exists and must not be replaced.

    Without `patterns`, only a regular file may be replaced; with them, only a folder whose files all match one.
    """
    if not out.exists():
        return
    if patterns is None:
        if not out.is_file():
            raise UserError(f"{out}: exists and is not a regular file; choose another out")
        return
    if not out.is_dir():
        raise UserError(f"{out}: exists and is not a folder; choose another out")
    for name in sorted(file.name for file in out.iterdir()):
        if not any(fnmatch(name, pattern) for pattern in patterns):
            raise UserError(f"{out}: contains {name}, which would be deleted; choose another out")
