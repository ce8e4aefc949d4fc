"""Measures the time and the disk reads of opening a bundle that is not in the page cache: `bench_open.py BUNDLE`."""

import argparse
import os
import statistics
import time
from pathlib import Path

from mobile_ft.cli.output import print_table
from mobile_ft.runtime import Model

MEGABYTE = 1e6


def drop_cached(bundle: Path) -> None:
    for path in bundle.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def disk_bytes() -> int:
    """Returns the bytes that the kernel has read from disk for this process."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes:")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    seconds, read = [], []
    for _ in range(args.rounds):
        drop_cached(args.bundle)
        before, start = disk_bytes(), time.perf_counter()
        model = Model(str(args.bundle))
        seconds.append(time.perf_counter() - start)
        read.append(disk_bytes() - before)
        del model
    size = sum(path.stat().st_size for path in args.bundle.iterdir())
    print_table(
        str(args.bundle),
        {
            "size": f"{size / MEGABYTE:.0f} MB",
            "open, median": f"{statistics.median(seconds):.4f} s",
            "open, longest": f"{max(seconds):.4f} s",
            "read from disk, most": f"{max(read) / MEGABYTE:.1f} MB",
        },
    )


if __name__ == "__main__":
    main()
