"""Writes a self-contained folder for training on a device."""

import hashlib
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any, Literal, cast

from mobile_ft.api.files import writing
from mobile_ft.api.options import native_arguments, option_texts, runtime_errors, train_settings
from mobile_ft.api.tokens import check_lengths, data_settings, prepare_tokens, validation_data
from mobile_ft.api.train import CHECKPOINT
from mobile_ft.bundle.description import Bundle, read_bundle
from mobile_ft.data.prepare import Loss
from mobile_ft.data.rows import DataSource, Split, split_file
from mobile_ft.errors import UserError
from mobile_ft.files.folder import new_folder
from mobile_ft.files.json_text import read_json_object
from mobile_ft.files.path_text import path_text
from mobile_ft.runtime import Dataset, TrainConfig, mft_run_path, train_options

MANIFEST = "manifest.json"  # SHA-256 of each file, by its path in the folder
RUN_SCRIPT = "run.sh"
Platform = Literal["linux", "macos"]
_TARGETS: dict[Platform, str] = {"linux": "aarch64", "macos": "macos"}  # of make, and the runtime's folder
OUT = "out"  # output folder of the training

_RUN = """#!/bin/sh
# Trains, or resumes from the checkpoint. Accepts options of `./mft-run train`. Prints events as lines of JSON.
# Writes the adapter to {out}. To use it: ./mft-run generate bundle --adapter {out} --prompt TEXT
set -e
cd "$(dirname "$0")"
{tokens}if [ -e {out}/{checkpoint} ]; then set -- --resume "$@"; fi
exec ./mft-run train bundle --data {data} --out {out} {options} "$@"
"""
_MAKE_TOKENS = """./mft-run tokens bundle --data {rows} --out {file} {options} >&2
"""


def pack_for_device(
    bundle: str | os.PathLike[str],
    data: DataSource,
    out: str | os.PathLike[str],
    *,
    valid: DataSource | None = None,
    adapter: str | os.PathLike[str] | None = None,
    raw_data: bool = False,
    platform: Platform = "linux",
    runtime: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Path:
    """Writes a folder with everything that a device needs to train: runtime, bundle, data and `run.sh`.

    Args:
        bundle: The bundle.
        data: Training data, as for `train`.
        out: Folder to write. An older pack there is replaced after everything is written.
        valid: Validation data. Requires `eval_every`. Default: the validation split of `data`.
        adapter: Folder of the adapter to start from.
        raw_data: Pack the rows and let the device tokenize them. `data` must be a .jsonl file or a folder with
            train.jsonl.
        platform: The device's system: "linux" for 64-bit ARM, phones included, or "macos" for Apple silicon.
        runtime: Runtime folder, written by tools/gather_runtime.py. Default: the platform's, from `make aarch64` or
            `make macos`.
        options: Options of `train`.

    Raises:
        UserError: An input cannot be used, or `out` contains anything but a pack.
    """
    found, target = read_bundle(Path(bundle)), Path(out)
    native = _runtime(platform, runtime)
    given = option_texts(train_options(), options)
    settings = train_settings(given)
    check_lengths(found, int(settings["seq_len"]), int(settings["batch_size"]))
    held_out = validation_data(data, valid, int(settings["eval_every"]))
    _check_replaceable(target)
    with writing(target), new_folder(target) as folder:
        shutil.copytree(native, folder, dirs_exist_ok=True)
        shutil.copytree(found.folder, folder / "bundle")
        if adapter is not None:
            shutil.copytree(adapter, folder / "adapter")
            given["adapter"] = "adapter"
        prepared = _put_data(found, data, "train", folder, settings, raw_data)
        if held_out is not None:
            prepared += _put_data(found, held_out, "valid", folder, settings, raw_data)
            given["valid"] = "valid.tokens"
        script = folder / RUN_SCRIPT
        arguments = shlex.join(native_arguments(given))
        names = {"out": OUT, "checkpoint": CHECKPOINT, "data": "train.tokens"}
        script.write_text(_RUN.format(**names, tokens=prepared, options=arguments))
        script.chmod(0o755)
        (folder / MANIFEST).write_text(json.dumps(_manifest(folder), indent=1) + "\n")
    return target


def _check_replaceable(out: Path) -> None:
    """Raises UserError if `out` exists and is not a pack."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out}: exists and is not a folder; choose another out")
    own = {MANIFEST, *(read_manifest(out) if (out / MANIFEST).is_file() else ())}
    for name in _files(out):
        if name not in own:
            raise UserError(f"{out}: contains {name}, which would be deleted; choose another out")


def read_manifest(pack: Path) -> dict[str, Any]:
    """Reads a pack's manifest. Raises UserError if it is missing or malformed."""
    return read_json_object(pack / MANIFEST, "use a folder written by `mobile-ft device pack`")


def _manifest(folder: Path) -> dict[str, str]:
    return {name: _sha256(folder / name) for name in _files(folder)}


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _runtime(platform: Platform, given: str | os.PathLike[str] | None) -> Path:
    if platform not in _TARGETS:
        raise UserError(f"platform {platform}: must be one of {', '.join(_TARGETS)}")
    target = _TARGETS[platform]
    folder = mft_run_path().parent / target if given is None else Path(given)
    if not (folder / "bin" / "mft-run").is_file():
        hint = f"run `make {target}` first" if given is None else "create one with tools/gather_runtime.py"
        raise UserError(f"{folder}: no runtime for devices found; {hint}")
    return folder


def _put_data(found: Bundle, data: DataSource, split: Split, folder: Path, settings: dict[str, str], raw: bool) -> str:
    """Writes a split of `data` to the folder. Returns the shell commands with which the device tokenizes it."""
    seq_len, seed, loss = int(settings["seq_len"]), int(settings["seed"]), cast(Loss, settings["loss"])
    tokens = f"{split}.tokens"
    prepare_tokens(found, data, split, seq_len, seed, folder / tokens, loss, settings)  # also checks the data
    if not raw:
        return ""
    rows = f"{split}.jsonl"
    source = split_file(Path(data), split) if isinstance(data, (str, os.PathLike)) else None
    if source is None or source.suffix != ".jsonl":
        raise UserError("raw_data: requires data as a .jsonl file, or a folder with train.jsonl")
    shutil.copy(source, folder / rows)
    own = {name: settings[name] for name in ("seq_len", "seed", "loss")} | data_settings(settings)
    own = {name: text for name, text in own.items() if text != ""}
    made = folder / f"{tokens}.device"
    with runtime_errors():  # the same computation as on the device
        Dataset(path_text(folder / "bundle"), path_text(folder / rows)).write_tokens(
            path_text(made), TrainConfig(**own)
        )
    if made.read_bytes() != (folder / tokens).read_bytes():
        raise UserError(f"{source}: the device would tokenize it differently; leave out raw_data")
    made.unlink()
    (folder / tokens).unlink()
    return _MAKE_TOKENS.format(file=tokens, rows=rows, options=shlex.join(native_arguments(own)))
