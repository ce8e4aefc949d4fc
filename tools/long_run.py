"""Measures whether memory, files and disk usage grow in a long run: `python tools/long_run.py --steps 20000`.

Trains a tiny model with validations and checkpoints. Between checkpoints, measures anonymous and resident memory, open
files, and disk usage. A run should only add the loss and the time of each step in memory, 12 bytes, and its loss in the
checkpoint.
"""

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mobile_ft.api.native import run_native
from tests.small_bundle import TalkingModel, write_small_bundle

EVERY = 500  # steps between checkpoints, and between validations
SEQ_LEN = 64
SHOWN = 6  # rows of the table
_ROWS = [{"prompt": f"say {i}", "completion": f" it is {7 * i}"} for i in range(40)]


@dataclass(frozen=True)
class Sample:
    """A sample halfway between two checkpoints, because events may be late: a pipe buffers those of about 200 steps."""

    step: int
    anon_mb: float
    rss_mb: float
    files: int  # open files
    disk_bytes: int  # in the output folder, and in open files without a name


class LongRun:
    """Receives a run's events, and samples its process and folder."""

    def __init__(self, out: Path) -> None:
        self.samples: list[Sample] = []
        self.plan: dict[str, Any] = {}
        self.done: dict[str, Any] = {}
        self._out, self._pid = out, 0

    def on_start(self, pid: int) -> None:
        self._pid = pid

    def on_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "plan":
                self.plan = event
            case "step" if event["step"] > EVERY and event["step"] % EVERY == EVERY // 2:
                self.samples.append(self._sample(event))
            case "done":
                self.done = event

    def _sample(self, step: dict[str, Any]) -> Sample:
        files = [os.stat(file) for file in Path(f"/proc/{self._pid}/fd").iterdir()]
        nameless = sum(file.st_size for file in files if file.st_nlink == 0)
        named = sum(file.stat().st_size for file in self._out.rglob("*") if file.is_file())
        return Sample(step["step"], step["anon_mb"], step["rss_mb"], len(files), named + nameless)


def long_run(folder: Path, options: dict[str, Any]) -> LongRun:
    """Trains the tiny model in `folder`, with options of `mft-run train`."""
    bundle = write_small_bundle(folder / "bundle", TalkingModel)
    rows, tokens = folder / "rows.jsonl", folder / "tokens"
    rows.write_text("".join(json.dumps(row) + "\n" for row in _ROWS))
    tokenize = ["tokens", str(bundle), "--data", str(rows), "--out", str(tokens), "--seq-len", str(SEQ_LEN)]
    run_native(tokenize, lambda event: None)
    run = LongRun(folder / "out")
    given = {"data": tokens, "valid": tokens, "out": folder / "out", "seq_len": SEQ_LEN}
    given |= {"save_every": EVERY, "eval_every": EVERY} | options
    arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    run_native(["train", str(bundle), *arguments], run.on_event, on_start=run.on_start)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("options", nargs="*", metavar="NAME=VALUE", help="options of `mft-run train`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = long_run(Path(folder), {"steps": args.steps} | dict(option.split("=", 1) for option in args.options))
    title = (
        f"{args.steps} steps {' '.join(args.options)}; planned anonymous memory {run.plan['planned_anon_mb']:.2f} MB"
    )
    table = Table("step", "anonymous, MB", "resident, MB", "open files", "disk, bytes", title=title)
    last = len(run.samples) - 1
    for row in sorted({round(last * i / (SHOWN - 1)) for i in range(SHOWN)}):
        s = run.samples[row]
        table.add_row(str(s.step), f"{s.anon_mb:.3f}", f"{s.rss_mb:.3f}", str(s.files), f"{s.disk_bytes:,}")
    Console().print(table)


if __name__ == "__main__":
    main()
