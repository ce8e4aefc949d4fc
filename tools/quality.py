"""What each schedule learns a step and a minute: `python tools/quality.py PHASE --data DIR`.

DIR holds gsm8k/ and wikitext2/. SmolLM2-135M, LoRA rank 16 on all linear layers, 256 tokens a step, loss on held-out
rows in float32. Phases, in order:

    tune     learning rates of every schedule, judged by rows of gsm8k's train split that no other phase sees
    seconds  seconds a step of every side, in turn, on all cores: the only phase that is timed, run it alone
    steps    every schedule for equal steps
    time     the same for equal time: as many steps as full backward's take
    long     600 steps on gsm8k
    report   docs/quality.md's tables and picture from what there is

Results go into a JSON file, run by run; runs that are in it are not run again, so any phase may be interrupted.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from demo import write_data
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import mobile_ft

SEQ_LEN, STEPS, LONG_STEPS, TUNING_STEPS, WARMUP_STEPS = 256, 200, 600, 100, 5
ROWS, HELD_OUT_ROWS = 1500, 100  # of gsm8k, to tune on; 600 steps take more, so other phases have twice as many
HELD_OUT_CHARACTERS = 100_000  # of WikiText-2
SEEDS = (1, 2, 3)
LEARNING_RATES = (5e-4, 1e-3, 2e-3, 4e-3)
LR_SCALE = {"gsm8k": 1.0, "wikitext2": 0.5, "dialogues": 1.0}  # WikiText-2's rows are full of targets
DATA = tuple(LR_SCALE)

FULL = "full"
Options = dict[str, Any]
SCHEDULES: dict[str, Options] = {
    FULL: {},
    "suffix 1/2": {"schedule": "suffix", "ratio": 0.5},
    "suffix 1/4": {"schedule": "suffix", "ratio": 0.25},
    "lcsb 1/2 random": {"schedule": "lcsb", "ratio": 0.5},
    "lcsb 1/2 random, skip": {"schedule": "lcsb", "ratio": 0.5, "unselected": "skip"},
    "lcsb 1/2 contiguous": {"schedule": "lcsb", "ratio": 0.5, "selection": "contiguous"},
    "lcsb 1/2 strided": {"schedule": "lcsb", "ratio": 0.5, "selection": "strided"},
    "lcsb 1/4 random": {"schedule": "lcsb", "ratio": 0.25},
    "lcsb 1/4 contiguous": {"schedule": "lcsb", "ratio": 0.25, "selection": "contiguous"},
    "lcsb 1/4 strided": {"schedule": "lcsb", "ratio": 0.25, "selection": "strided"},
    "dropbp 0.5": {"schedule": "dropbp", "ratio": 0.5},
    "dropbp 0.75": {"schedule": "dropbp", "ratio": 0.25},
    "lisa": {"schedule": "lisa", "ratio": 0.1},
    "freeze": {"schedule": "freeze", "ratio": 0.25},
}


@dataclass(frozen=True)
class Run:
    """One run of training. Its name is its key in the results."""

    data: str
    side: str
    lr: float
    steps: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}/{self.side}/{self.lr:g}/{self.steps}/{self.seed}"


class Results:
    """The JSON file: held-out losses by the names of runs, and seconds a step by side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text()) if path.exists() else {}
        self.losses: dict[str, float] = known.get("losses", {})
        self.seconds: dict[str, list[float]] = known.get("seconds", {})
        self.measuring: dict[str, list[float]] = known.get("measuring", {})

    def save(self) -> None:
        values = {"losses": self.losses, "seconds": self.seconds, "measuring": self.measuring}
        self._path.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")

    def best_lr(self, side: str) -> float:
        """The learning rate of the lowest loss on the rows for tuning; 1e-3 where they were not tried."""
        tried = {lr: self.losses.get(Run("tuning", side, lr, TUNING_STEPS, 1).name) for lr in LEARNING_RATES}
        found = {lr: loss for lr, loss in tried.items() if loss is not None}
        return min(found, key=lambda lr: found[lr]) if found else 1e-3

    def steps_in_time(self, side: str, steps: int) -> int:
        """How many steps a side makes in the time of so many full ones, measuring sensitivities included."""
        step, full = median(self.seconds[side]), median(self.seconds[FULL])
        once = median(self.measuring[side]) if side in self.measuring else 0.0
        return max(1, round((steps * full - once) / step))

    def mean_loss(self, runs: list[Run]) -> list[float]:
        return [self.losses[run.name] for run in runs if run.name in self.losses]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=["tune", "seconds", "steps", "time", "long", "report"])
    parser.add_argument("--data", type=Path, help="folder with gsm8k/ and wikitext2/")
    parser.add_argument("--results", type=Path, default=Path("docs/quality.json"))
    parser.add_argument("--only", default="", help="runs whose name, such as gsm8k/full/0.001/200/1, holds this text")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each (default: 2)")
    args = parser.parse_args()
    results = Results(args.results)
    if args.phase == "report":
        report(results, args.results.with_suffix(".svg"))
        return
    if args.data is None:
        parser.error("--data is needed to run")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_all(args.data, folder)
        mobile_ft.export_bundle("smollm2-135m", folder / "bundle", max_seq_len=SEQ_LEN, progress=False)
        if args.phase == "seconds":
            measure_seconds(folder, results)
            return
        runs = [run for run in runs_of(args.phase, results) if args.only in run.name]
        learn(folder, runs, results, args.jobs)


def runs_of(phase: str, results: Results) -> Iterator[Run]:
    if phase == "tune":
        for lr in LEARNING_RATES:
            yield from (Run("tuning", side, lr, TUNING_STEPS, 1) for side in SCHEDULES)
    elif phase == "long":
        for side in SCHEDULES:
            yield Run("gsm8k", side, results.best_lr(side), LONG_STEPS, 1)
    else:
        for seed in SEEDS:
            for data in DATA:
                yield from (run_of(phase, data, side, seed, results) for side in SCHEDULES)


def run_of(phase: str, data: str, side: str, seed: int, results: Results) -> Run:
    steps = STEPS if phase == "steps" else results.steps_in_time(side, STEPS)
    return Run(data, side, results.best_lr(side) * LR_SCALE[data], steps, seed)


def write_all(source: Path, folder: Path) -> None:
    """Every data set's train.jsonl and valid.jsonl; "tuning" holds out rows of gsm8k's train split."""
    train, test = ((source / "gsm8k" / f"{split}.jsonl").read_text().splitlines() for split in ("train", "test"))
    text = {split: (source / "wikitext2" / f"{split}.txt").read_text() for split in ("valid", "test")}
    splits = {
        "gsm8k": (train[: 2 * ROWS], test[:HELD_OUT_ROWS]),
        "tuning": (train[:ROWS], train[-HELD_OUT_ROWS:]),
        "wikitext2": (
            [json.dumps({"text": text["valid"]})],
            [json.dumps({"text": text["test"][:HELD_OUT_CHARACTERS]})],
        ),
    }
    for name, (rows, held_out) in splits.items():
        (folder / name).mkdir()
        (folder / name / "train.jsonl").write_text("\n".join(rows) + "\n")
        (folder / name / "valid.jsonl").write_text("\n".join(held_out) + "\n")
    write_data(folder / "dialogues")


def learn(folder: Path, runs: list[Run], results: Results, jobs: int) -> None:
    """Runs what is not known yet, several at once, and saves each result as it comes."""
    unknown = list(dict.fromkeys(run for run in runs if run.name not in results.losses))
    with Progress() as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("runs", total=len(unknown))
        futures = {pool.submit(held_out_loss, folder, run): run for run in unknown}
        for future in as_completed(futures):
            run = futures[future]
            results.losses[run.name] = future.result()
            results.save()
            progress.console.print(f"{run.name}: {results.losses[run.name]:.4f}")
            progress.advance(task)


def held_out_loss(folder: Path, run: Run) -> float:
    """After the run's last step, in float32. Infinite where the run diverged."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        try:
            result = mobile_ft.train(
                folder / "bundle",
                folder / run.data,
                out,
                progress=False,
                seq_len=SEQ_LEN,
                steps=run.steps,
                lr=run.lr,
                warmup_steps=WARMUP_STEPS,
                seed=run.seed,
                threads=1,
                eval_every=run.steps,
                save_every=run.steps,
                **SCHEDULES[run.side],
            )
        except mobile_ft.UserError as error:
            if "not finite" in str(error):
                return float("inf")
            raise
        return result.evals[-1][1]


def measure_seconds(folder: Path, results: Results, rounds: int = 3, steps: int = 8) -> None:
    """The mean step of a run of each side in turn, and how long dropbp measures sensitivities."""
    for _ in range(rounds):
        for side, options in SCHEDULES.items():
            events: list[dict[str, Any]] = []
            with tempfile.TemporaryDirectory(dir=folder) as out:
                mobile_ft.train(
                    folder / "bundle",
                    folder / "gsm8k",
                    out,
                    progress=False,
                    seq_len=SEQ_LEN,
                    steps=steps,
                    callbacks=[events.append],
                    **options,
                )
            seconds = [event["seconds"] for event in events if event["event"] == "step"]
            step = mean(seconds[2:])  # the first ones verify weights; those of freeze get cheaper
            results.seconds.setdefault(side, []).append(step)
            if any(event["event"] == "sensitivities" for event in events):
                results.measuring.setdefault(side, []).append(seconds[0] - step)
            print(f"{side}: {step:.3f} s")
    results.save()


def report(results: Results, picture: Path) -> None:
    for phase in ("steps", "time"):
        if phase == "steps" or FULL in results.seconds:
            print_losses(results, phase)
    long = {
        side: results.losses.get(Run("gsm8k", side, results.best_lr(side), LONG_STEPS, 1).name) for side in SCHEDULES
    }
    table = Table("schedule", "held-out loss", "of full's", title=f"{LONG_STEPS} steps of gsm8k")
    for side, loss in long.items():
        if loss is not None:
            table.add_row(side, f"{loss:.4f}", change(loss, long[FULL]))
    Console(width=150).print(table)
    draw(results, picture)


def change(loss: float, of: float | None) -> str:
    return "" if of is None else f"{100 * (loss / of - 1):+.1f} %"


def print_losses(results: Results, phase: str) -> None:
    """Means over the seeds that there are of a side and of full backward."""
    table = Table("schedule", "lr", "s/step", "of full's", *DATA, title=f"held-out loss, equal {phase}, mean of seeds")
    for side in SCHEDULES:
        if phase == "time" and side not in results.seconds:
            continue
        step = median(results.seconds[side]) if side in results.seconds else None
        full = median(results.seconds[FULL]) if FULL in results.seconds else None
        row = [
            side,
            f"{results.best_lr(side):g}",
            f"{step:.3f}" if step else "",
            f"{step / full:.2f}" if step and full else "",
        ]
        for data in DATA:
            seeds = [
                seed
                for seed in SEEDS
                if all(run_of(phase, data, s, seed, results).name in results.losses for s in (side, FULL))
            ]
            if not seeds:
                row.append("")
                continue
            loss, reference = (
                mean(results.losses[run_of(phase, data, s, seed, results).name] for seed in seeds) for s in (side, FULL)
            )
            row.append(f"{loss:.4f} ({change(loss, reference)}, {len(seeds)})")
        table.add_row(*row)
    Console(width=150).print(table)


def draw(results: Results, path: Path) -> None:
    """Held-out loss of gsm8k against minutes, at equal steps and equal time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for side in SCHEDULES:
        points = []
        for phase in ("steps", "time"):
            if side not in results.seconds:
                continue
            runs = [run_of(phase, "gsm8k", side, seed, results) for seed in SEEDS]
            if losses := results.mean_loss(runs):
                points.append((runs[0].steps * median(results.seconds[side]) / 60, mean(losses)))
        if points:
            axes.plot(*zip(*points, strict=True), "o-", label=side)
    axes.set(xlabel="minutes of training", ylabel="held-out loss, gsm8k")
    axes.legend(fontsize="small")
    figure.savefig(path)


if __name__ == "__main__":
    main()
