"""`mobile-ft device`: trains on a phone or another machine."""

import argparse
from pathlib import Path
from typing import get_args

from mobile_ft.api.device_link import Device
from mobile_ft.api.device_pack import Platform, pack_for_device
from mobile_ft.api.device_run import pull_from_device, run_on_device
from mobile_ft.api.files import write_json
from mobile_ft.api.results import megabytes
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, add_json, add_options, given_options
from mobile_ft.cli.output import check_json_path, print_table, warn
from mobile_ft.runtime import train_options

_FOLDERS = {"adb": "/data/local/tmp/mobile-ft", "ssh": "mobile-ft"}


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("device", help="train on a phone or another machine")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_pack(actions)
    run = actions.add_parser("run", help="copy a packed folder to the device and train there, or resume")
    run.add_argument("pack", metavar="PACK", type=Path, help="folder made by `mobile-ft device pack`")
    _add_device(run)
    add_json(run)
    run.set_defaults(run=_run)
    pull = actions.add_parser("pull", help="copy the adapter from the device")
    _add_device(pull)
    pull.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to write")
    pull.set_defaults(run=_pull)


def _add_pack(actions: Subparsers) -> None:
    parser = actions.add_parser("pack", help="write a self-contained folder for training on a device")
    add_bundle(parser)
    option = parser.add_argument
    option("--data", metavar="DIR|FILE", type=Path, required=True, help="training data, as for `mobile-ft train`")
    option(
        "--valid",
        metavar="FILE",
        type=Path,
        help="validation data for --eval-every (default: valid.jsonl in the --data folder)",
    )
    add_adapter(parser, "the bundle's own, untrained")
    option("--raw-data", action="store_true", help="pack the rows as they are; the device tokenizes them (.jsonl only)")
    option(
        "--platform",
        choices=get_args(Platform),
        default="linux",
        help="the device's system: linux (64-bit ARM, phones included) or macos (Apple silicon) (default: linux)",
    )
    option(
        "--runtime",
        metavar="DIR",
        type=Path,
        help="runtime for the device, from tools/gather_runtime.py (default: the platform's, built by `make aarch64` "
        "or `make macos`)",
    )
    option("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to write")
    add_options(parser, train_options())
    parser.set_defaults(run=_pack)


def _add_device(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--adb", metavar="SERIAL", nargs="?", const="", help="device connected by adb; SERIAL if there are several"
    )
    which.add_argument("--ssh", metavar="HOST", help="device reachable by ssh")
    folders = ", ".join(f"{folder} with --{kind}" for kind, folder in _FOLDERS.items())
    parser.add_argument("--folder", metavar="DIR", help=f"folder on the device (default: {folders})")


def _pack(args: argparse.Namespace) -> None:
    made = pack_for_device(
        args.bundle,
        args.data,
        args.output,
        valid=args.valid,
        adapter=args.adapter,
        raw_data=args.raw_data,
        platform=args.platform,
        runtime=args.runtime,
        **given_options(args, train_options()),
    )
    size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
    there = "--ssh HOST" if args.platform == "macos" else "--adb"
    print(f"{made}: {megabytes(size)}; to train, run `sh run.sh` in it or `mobile-ft device run {made} {there}`")


def _run(args: argparse.Namespace) -> None:
    check_json_path(args.json)
    device = _device(args)
    result = run_on_device(args.pack, device)
    write_json(args.json, result.to_json())
    if result.losses:
        print_table(*result.summary())
    if result.stopped == "interrupted":
        warn(f"interrupted; {device} finishes its step and writes a checkpoint; run the same command to resume")
        raise KeyboardInterrupt


def _pull(args: argparse.Namespace) -> None:
    print(f"{pull_from_device(_device(args), args.output)}: copied adapter and checkpoint from {_device(args)}")


def _device(args: argparse.Namespace) -> Device:
    if args.ssh is None:
        return Device("adb", args.adb, args.folder or _FOLDERS["adb"])
    return Device("ssh", args.ssh, args.folder or _FOLDERS["ssh"])
