"""Memory of training on long texts, paragraphs and one endless line of so many megabytes: `bench_data.py BUNDLE`.

Runs `mobile-ft train` for one step; the peak is that of the whole command, the child that trains included.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mobile_ft.cli.output import print_table

MEGABYTE = 1_000_000


def write_text(path: Path, size: int, separator: str) -> None:
    """Random words of 2 to 9 letters, with `separator` behind every 80th."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgk", np.uint8)
    words = [bytes(rng.choice(letters, rng.integers(2, 10))).decode() for _ in range(5000)]
    with path.open("w") as file:
        while file.tell() < size:
            file.write(" ".join(rng.choice(words, 80)) + separator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--megabytes", type=int, default=40)
    args = parser.parse_args()
    rows = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for name, separator in (("paragraphs", "\n\n"), ("one line", " ")):
            text, out = Path(folder) / f"{name}.txt", Path(folder) / name
            write_text(text, args.megabytes * MEGABYTE, separator)
            command = [sys.executable, "-m", "mobile_ft.cli.main", "train", str(args.bundle), "--data", str(text)]
            start = time.monotonic()
            child = subprocess.Popen([*command, "--steps", "1", "--out", str(out)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            if status != 0:
                sys.exit(f"{name}: mobile-ft train failed")
            rows[name] = f"peak RSS {usage.ru_maxrss * 1024 / MEGABYTE:.0f} MB, {time.monotonic() - start:.0f} s"
    print_table(f"training on {args.megabytes} MB of text", rows)


if __name__ == "__main__":
    main()
