"""Times of a step beside a busy program on one of the cores.

    python benchmarks/bench_neighbour.py [--steps 10] [--rounds 3]

A step of SmolLM2-135M at 256 tokens, schedule full, recompute: alone, alone with one thread, beside a loop that never
waits, at nice 0 and at nice 10, and beside one that takes half the time of one core before all others, which makes the
core half as fast (as root only). All sides in turn; medians over all steps but the first of each run.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.data.packing import EncodedRow, pack, write_token_file
from mobile_ft.runtime import mft_run_path

TOKENS = 256


LOOP = "while True: pass"
HALF_OF_A_CORE = """import os, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
while True:
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end: pass
    time.sleep(0.004)
"""


@contextlib.contextmanager
def neighbour(code: str, nice: int) -> Iterator[None]:
    if not code:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", code], preexec_fn=lambda: os.nice(nice))
    try:
        yield
        if process.poll() is not None:
            sys.exit("bench_neighbour: the program beside the step ended; half of a core takes root")
    finally:
        process.kill()
        process.wait()


def step_seconds(bundle: Path, data: Path, folder: Path, steps: int, options: list[str]) -> list[float]:
    command = [str(mft_run_path()), "train", str(bundle), "--data", str(data), "--steps", str(steps)]
    command += ["--seq-len", str(TOKENS), "--backward", "recompute", "--out", tempfile.mkdtemp(dir=folder), *options]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    events = [json.loads(line) for line in found]
    return [event["seconds"] for event in events if event["event"] == "step"][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sides: dict[str, tuple[str, int, list[str]]] = {
        "alone": ("", 0, []),
        "alone, --threads 1": ("", 0, ["--threads", "1"]),
        "beside a loop at nice 0": (LOOP, 0, []),
        "beside a loop at nice 10": (LOOP, 10, []),
        "one core half as fast": (HALF_OF_A_CORE, 0, []),
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bundle, data = folder / "bundle", folder / "tokens.safetensors"
        mobile_ft.export_bundle("smollm2-135m", bundle, max_seq_len=TOKENS, progress=False)
        rows = np.random.default_rng(0).integers(0, 49152, (4, TOKENS + 1)).astype(np.int32)
        write_token_file(data, pack([EncodedRow(row[:-1], row[1:]) for row in rows], TOKENS, 0))
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, (code, nice, options) in sides.items():
                with neighbour(code, nice):
                    seconds[side] += step_seconds(bundle, data, folder, args.steps, options)
    table = Table("", "seconds a step", "times alone")
    alone = statistics.median(seconds["alone"])
    for side, found in seconds.items():
        table.add_row(side, f"{statistics.median(found):.3f}", f"{statistics.median(found) / alone:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
