"""Measures the server's cost of a round by number of devices: `python benchmarks/bench_fleet.py --devices 10 100 1000`.

Devices train a tiny random model on their own rows. One in ten drops out of a round, and one in twenty answers after
the round. For the server, measures the seconds from the last reply to the new adapter on disk, the growth of anonymous
memory since the first round, and bytes. Flower passes all replies together, so memory grows with the number of devices.
The last column is the size of an update in float32.
"""

import argparse
import json
import random
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from flwr.app import Message
from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.api.adapter import read_tensors
from mobile_ft.federated.strategy import LoraStrategy
from tests.federated.fleet import Fleet, no_reply
from tests.small_bundle import TalkingModel, write_small_bundle

ROUNDS = 3
DROP_OUT, LATE = 0.1, 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    warnings.simplefilter("ignore", mobile_ft.MobileFtWarning)
    table = Table("devices", "strategy", "updates", "missed", "seconds", "memory", "MB down", "MB up", "an update, MB")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_small_bundle(folder / "bundle", TalkingModel)
        for devices in args.devices:
            for device in range(devices):
                write_rows(folder / "rows" / str(device), device)
            for strategy in ("fedavg", "fedsvd", "fedmedian"):
                # Each runs in its own process, so that its memory is not affected by others.
                with ProcessPoolExecutor(1, get_context("spawn")) as process:
                    found = process.submit(measure, folder, devices, strategy, args.jobs).result()
                table.add_row(str(devices), strategy, *found)
    Console().print(table)


def write_rows(folder: Path, device: int) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True)
    draw = random.Random(device)
    word = "".join(draw.choices("abcdefgh", k=6))
    rows = [json.dumps({"prompt": f"{i} {word}", "completion": word * draw.randint(1, 3)}) for i in range(8)]
    for split in ("train", "valid"):
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")


def measure(folder: Path, devices: int, strategy: str, jobs: int) -> list[str]:
    config: dict[str, Any] = {
        "bundle": str(folder / "bundle"),
        "data": str(folder / "rows" / "{partition}"),
        "folder": str(folder / f"{strategy}{devices}" / "{partition}"),
        "out": str(folder / f"{strategy}{devices}-out"),
        "rounds": ROUNDS,
        "wire": "int8",
        "strategy.name": strategy,
        "strategy.fraction-evaluate": 0.0,
        "train.steps": 1,
        "train.seq-len": 32,
        "train.threads": 1,
        "train.lr": 1e-3,
    }
    fleet = Fleet(config, devices, jobs)
    draw = random.Random(devices)
    fates = {(number, node): draw.random() for number in range(1, ROUNDS + 1) for node in range(devices)}

    def tamper(number: int, node: int, reply: Message) -> Message | None:
        fate = fates[number, node]
        return no_reply(reply) if fate < DROP_OUT else None if fate < DROP_OUT + LATE else reply

    fleet.tamper = tamper
    seconds: list[float] = []
    before, peak = anonymous_mb(), 0.0
    aggregate = LoraStrategy.aggregate_train

    def timed(self: LoraStrategy, number: int, replies: Any) -> Any:
        nonlocal peak
        begun = time.perf_counter()
        result = aggregate(self, number, replies)
        seconds.append(time.perf_counter() - begun)
        peak = max(peak, anonymous_mb())
        return result

    with patch.object(LoraStrategy, "aggregate_train", timed):
        records = fleet.run()
    last = records[-1]
    update = sum(x.nbytes for x in read_tensors(folder / "bundle" / "adapter_model.safetensors").values())
    return [
        str(len(last["clients"])),
        str(len(last["refused"])),
        f"{median(seconds):.2f}",
        f"{peak - before:.0f} MB",
        f"{last['bytes_down'] / 1e6:.1f}",
        f"{last['bytes_up'] / 1e6:.1f}",
        f"{update / 1e6:.3f}",
    ]


def anonymous_mb() -> float:
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.partition("Anonymous:")[2].split()[0]) / 1e3


if __name__ == "__main__":
    main()
