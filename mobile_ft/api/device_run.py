"""Trains what `pack_for_device` packed on a device, and fetches the adapter."""

import os
from pathlib import Path

from mobile_ft.api.device_link import Device
from mobile_ft.api.device_pack import MANIFEST, OUT, RUN_SCRIPT, read_manifest
from mobile_ft.api.files import writing
from mobile_ft.api.native import run_command
from mobile_ft.api.progress import ProgressDisplay
from mobile_ft.api.results import TrainResult
from mobile_ft.api.train import CHECKPOINT
from mobile_ft.api.watcher import RunWatcher
from mobile_ft.errors import UserError
from mobile_ft.files.folder import new_folder
from mobile_ft.model.lora import CONFIG_FILE


def run_on_device(pack: str | os.PathLike[str], device: Device, *, progress: bool = True) -> TrainResult:
    """Puts the folder `pack` on the device, where it is not there yet, and trains there, or goes on with it.

    Where the device's folder holds a run of another pack, that stays and nothing is done: UserError.

    Ctrl-C, or a broken connection, ends the run after the step in progress, saved on the device: then `stopped` of the
    result is "interrupted", and running it again goes on. Raises UserError where the device cannot be reached, or the
    run fails.
    """
    folder = Path(pack)
    files = read_manifest(folder)
    with ProgressDisplay("step", progress) as display:
        if device.output(f"cat {MANIFEST} 2>/dev/null") != (folder / MANIFEST).read_bytes():
            if device.output(f"ls {OUT}/{CHECKPOINT} 2>/dev/null"):
                raise UserError(f"{device}: holds the run of another pack in {OUT}; give another --folder")
            display.print(f"copying {folder} to {device}")
            device.output(f"rm -f {MANIFEST}")  # comes last: where it is, all is
            device.push(folder, sorted({name.split("/")[0] for name in files}))
            device.push(folder, [MANIFEST])
        watcher = RunWatcher(display, [])
        where = Path(f"{device}/{OUT}")
        try:
            run_command(device.command(f"sh {RUN_SCRIPT}"), watcher.on_event)
        except KeyboardInterrupt:
            return watcher.result(where, {}, "interrupted", [])
    return watcher.result(where, {}, watcher.done["stopped"], [])


def pull_from_device(device: Device, out: str | os.PathLike[str]) -> Path:
    """Fetches the adapter, and the checkpoint of the run, to the folder `out`, which must not hold anything else.

    What was at `out` stays until all has come. Raises UserError.
    """
    target = Path(out)
    if target.exists() and not _is_adapter(target):
        raise UserError(f"{target}: exists and is no adapter; choose another folder for -o")
    with writing(target), new_folder(target) as folder:
        device.pull(OUT, folder)
        if not _is_adapter(folder):
            raise UserError(f"{device}: no adapter in {OUT}; train first")
    return target


def _is_adapter(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file()
