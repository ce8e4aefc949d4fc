"""Measures the effect of int8 on the loss: `python benchmarks/bench_training.py GSM8K WIKITEXT2 --json FILE`.

Trains SmolLM2-135M on three data sets (folders of gsm8k and of WikiText-2, and the dialogues of `make demo`) with LoRA
of rank 16 on all linear layers. The loss on held-out rows is always computed in float32. Results in the JSON file are
not computed again. Several runs share the cores; none is timed.
"""

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))  # folder of the demo and its data

from demo import mobile_ft
from dialogues import write_data
from rich.console import Console
from rich.table import Table

SEQ_LEN = 256
ROWS, HELD_OUT_ROWS = 1500, 100  # rows of gsm8k
HELD_OUT_CHARACTERS = 100_000  # characters of WikiText-2
LEARNING_RATE = {"gsm8k": 1e-3, "wikitext2": 5e-4, "dialogues": 1e-3}
SMALL = ["--compute", "int8", "--backward", "store", "--optimizer", "adamw8bit"]
# Side -> storage format of activations, options of train. The others are compared with the first.
SIDES = {
    "float32": ("exact", ["--compute", "float32"]),
    "int8": ("exact", ["--compute", "int8"]),
    "int8, 8-bit activations and moments": ("int8", SMALL),
    "int8, 4-bit activations of MLPs": ("int4", SMALL),
    "int8, 2-bit activations of MLPs": ("approx2bit", SMALL),
}
Losses = dict[str, float]  # "<data set>/<side>/<seed>" -> held-out loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gsm8k", type=Path)
    parser.add_argument("wikitext2", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", default="", help="run only runs whose name, such as gsm8k/int8/1, has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of concurrent runs, one thread each")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()

    losses: Losses = json.loads(args.json.read_text()) if args.json.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_gsm8k(args.gsm8k, folder / "gsm8k")
        write_wikitext2(args.wikitext2, folder / "wikitext2")
        write_data(folder / "dialogues")
        for activation in {activation for activation, _ in SIDES.values()}:
            bundle = folder / f"{activation}.bundle"
            options = ["--max-seq-len", SEQ_LEN, "--activation", activation]
            mobile_ft("export", "smollm2-135m", "-o", bundle, *options, capture=True)

        names = [f"{data}/{side}/{seed}" for seed in args.seeds for data in LEARNING_RATE for side in SIDES]
        names = [name for name in names if args.only in name and name not in losses]
        with ThreadPoolExecutor(args.jobs) as pool:
            for name, loss in zip(names, pool.map(lambda n: held_out_loss(folder, n, args.steps), names), strict=True):
                losses[name] = loss
                print(f"{name}: {loss:.4f}", flush=True)
                args.json.write_text(json.dumps(losses, indent=1, sort_keys=True) + "\n")
    print_losses(losses)


def write_gsm8k(source: Path, folder: Path) -> None:
    folder.mkdir()
    for split, name, rows in (("train", "train", ROWS), ("test", "valid", HELD_OUT_ROWS)):
        lines = (source / f"{split}.jsonl").read_text().splitlines(keepends=True)[:rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))


def write_wikitext2(source: Path, folder: Path) -> None:
    """Trains on the validation split."""
    folder.mkdir()
    for split, name, size in (("valid", "train", None), ("test", "valid", HELD_OUT_CHARACTERS)):
        row = {"text": (source / f"{split}.txt").read_text()[:size]}
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")


def held_out_loss(folder: Path, name: str, steps: int) -> float:
    data, side, seed = name.split("/")
    activation, options = SIDES[side]
    bundle, out = folder / f"{activation}.bundle", folder / f"out-{name.replace('/', '-')}"
    options = [*options, "--lr", str(LEARNING_RATE[data]), "--warmup-steps", "5", "--seed", seed]
    run = ["--seq-len", SEQ_LEN, "--steps", steps, "--threads", 1, "--out", out]
    mobile_ft("train", bundle, "--data", folder / data / "train.jsonl", *run, *options, capture=True)
    result = ["--json", out / "eval.json"]
    mobile_ft("eval", bundle, "--data", folder / data / "valid.jsonl", "--adapter", out, *result, capture=True)
    loss: float = json.loads((out / "eval.json").read_text())["loss"]
    return loss


def print_losses(losses: Losses) -> None:
    first, *others = SIDES
    table = Table("data set", "seed", first, *others, title="held-out loss")
    for data in LEARNING_RATE:
        changes: dict[str, list[float]] = {side: [] for side in others}
        for seed in sorted({name.split("/")[2] for name in losses if name.startswith(f"{data}/")}, key=int):
            row: list[Any] = [data, seed]
            expected = losses.get(f"{data}/{first}/{seed}")
            row.append(f"{expected:.4f}" if expected else "")
            for side in others:
                loss = losses.get(f"{data}/{side}/{seed}")
                row.append(f"{loss:.4f}" if loss else "")
                if loss and expected:
                    changes[side].append(100 * (loss / expected - 1))
                    row[-1] += f" ({changes[side][-1]:+.2f} %)"
            table.add_row(*row)
        table.add_row(data, "mean", "", *(f"{mean(c):+.2f} %" if c else "" for c in changes.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
