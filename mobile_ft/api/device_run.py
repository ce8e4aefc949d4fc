"""Trains a pack from `pack_for_device` on a device, and copies the adapter back."""

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
    """Trains on a device. Copies the pack to the device if it is not there yet, and resumes if its run has a
    checkpoint.

    Ctrl-C ends the run after the current step, with a checkpoint on the device; `stopped` of the result is then
    "interrupted". A broken connection ends the run in the same way, but raises UserError: call this again to resume. A
    run of another pack in the device's folder is never changed.

    Args:
        pack: Folder from `pack_for_device`.
        device: The device and the folder on it.
        progress: Show progress.

    Raises:
        UserError: The device cannot be reached, the connection breaks, the device's folder has a run of another pack,
            or the run fails.
    """
    folder = Path(pack)
    files = read_manifest(folder)
    with ProgressDisplay("step", progress) as display:
        if device.output(f"cat {MANIFEST} 2>/dev/null") != (folder / MANIFEST).read_bytes():
            if device.output(f"ls {OUT}/{CHECKPOINT} 2>/dev/null"):
                raise UserError(f"{device}: the folder {OUT} has a run of another pack; choose another folder")
            display.print(f"copying {folder} to {device}")
            device.output(f"rm -f {MANIFEST}")  # copied last: if it is there, everything is
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
    """Copies adapter and checkpoint from a device to the folder `out`.

    Args:
        device: The device and the folder on it.
        out: Folder to write. It must not exist, or must be an adapter, which is replaced after everything has arrived.

    Raises:
        UserError: The device cannot be reached or has no adapter, or `out` is something else.
    """
    target = Path(out)
    if target.exists() and not _is_adapter(target):
        raise UserError(f"{target}: exists and is not an adapter; choose another out")
    with writing(target), new_folder(target) as folder:
        device.pull(OUT, folder)
        if not _is_adapter(folder):
            raise UserError(f"{device}: no adapter in the folder {OUT}; train first")
    return target


def _is_adapter(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file()
