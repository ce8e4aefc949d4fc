"""Compares the loss of training configurations by step and by time: `python benchmarks/quality.py PHASE --data DIR`.

DIR has gsm8k/ and wikitext2/. Trains a model with LoRA of rank 16 on all linear layers and 256 tokens per step,
and computes the loss on held-out rows in float32. Phases, in order:

    tune        learning rates of every schedule, on rows of gsm8k's train split that no other phase uses
    seconds     seconds per step of every side, in turn, on all cores; the only timed phase, so run it alone
    tune-longer learning rates of the recommended sides, with the number of steps of equal time
    steps       equal steps
    time        equal time: schedules and full backward in int8, and the recommended sides and full in float32
    operations  schedules with equal operations
    long        600 steps on gsm8k, and the number of its questions that are answered correctly
    controls    negative controls, which must fail the bar
    stability   learning rates at which full backward may diverge
    rates       learning rates of full backward on every data set, for short runs, other ranks and scales of LoRA
    second      learning rates and equal steps of the schedules that are measured on other models too
    report      the tables and the picture of docs/quality.md, from the available results

Results are saved in a JSON file after each run and not computed again, so any phase can be interrupted.
"""

import argparse
import json
import random
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))  # folder of the demo and its data

import quality_report
from dialogues import write_data
from quality_runs import (
    ADAPTED,
    ADVISED,
    BUDGETS,
    FULL,
    LONG_STEPS,
    SCHEDULES,
    SIDES,
    TIMED,
    Results,
    Run,
    Side,
    runs_of,
    timing,
)
from rich.progress import Progress

import mobile_ft
from mobile_ft.bundle.description import read_bundle
from mobile_ft.runtime import TrainConfig

SEQ_LEN, WARMUP_STEPS = 256, 5
ROWS = 1500  # rows of gsm8k for tuning; 600 steps need more, so other phases use twice as many
TUNING_ROWS, HELD_OUT_ROWS, HELD_OUT_CHARACTERS = 100, 50, 50_000
QUESTIONS, ANSWER_TOKENS = 100, 160
PHASES = (
    "tune",
    "seconds",
    "tune-longer",
    "steps",
    "time",
    "operations",
    "long",
    "controls",
    "stability",
    "rates",
    "second",
    "report",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phase", choices=PHASES)
    parser.add_argument("--data", type=Path, help="folder with gsm8k/ and wikitext2/")
    parser.add_argument("--model", default="smollm2-135m", help="any that `export` takes (default: smollm2-135m)")
    parser.add_argument("--chat-template", type=Path, help="for a model without one, such as gemma.jinja")
    parser.add_argument("--results", type=Path, default=Path("docs/quality.json"), help="a file for each model")
    parser.add_argument(
        "--only", default="", help="run only runs whose name has this text, such as gsm8k/full/0.001/100/1"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of concurrent runs, one thread each (default: 2)")
    parser.add_argument("--rounds", type=int, default=2, help="timings per side (default: 2)")
    args = parser.parse_args()
    results = Results(args.results)
    if args.phase == "report":
        quality_report.report(results, args.results.with_suffix(".svg"))
        return
    if args.data is None:
        parser.error("--data is required for this phase")
    warnings.simplefilter(
        "ignore", mobile_ft.MobileFtWarning
    )  # about rows that are too long, which are the same in every run
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_all(args.data, folder)
        bundles = Bundles(folder, args.model, args.chat_template)
        if results.size not in ({}, bundles.size()):
            parser.error(f"{args.results}: has the results of another model; give --results another file")
        results.size = bundles.size()
        if args.phase in ("time", "tune-longer") and not results.timed(*SCHEDULES, *ADVISED):
            parser.error(f"{args.phase}: requires the results of the phase seconds; run it first")
        if args.phase == "seconds":
            measure_seconds(folder, bundles, results, args.only, args.rounds)
            return
        if args.phase == "rates":
            results.auto = {
                side: TrainConfig().learning_rate(str(bundles.of(SIDES[side]))) for side in (FULL, *ADAPTED)
            }
        runs = [run for run in runs_of(args.phase, results) if args.only in run.name]
        learn(folder, bundles, runs, results, args.jobs)


def write_all(source: Path, folder: Path) -> None:
    """Writes every data set's train.jsonl and valid.jsonl. "tuning" holds out rows of gsm8k's train split."""
    train, test = ((source / "gsm8k" / f"{split}.jsonl").read_text().splitlines() for split in ("train", "test"))
    text = {split: (source / "wikitext2" / f"{split}.txt").read_text() for split in ("valid", "test")}
    splits = {
        "gsm8k": (train[: 2 * ROWS], test[:HELD_OUT_ROWS]),
        "shuffled": (shuffled(train[: 2 * ROWS]), test[:HELD_OUT_ROWS]),
        "tuning": (train[:ROWS], train[-TUNING_ROWS:]),
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
    (folder / "questions.jsonl").write_text("\n".join(test[:QUESTIONS]) + "\n")


def shuffled(rows: list[str]) -> list[str]:
    """Shuffles the words of all answers, so that neither question nor context predicts the next word."""
    found = [json.loads(row) for row in rows]
    words = [word for row in found for word in row["answer"].split(" ")]
    random.Random(0).shuffle(words)
    left = iter(words)
    for row in found:
        row["answer"] = " ".join(next(left) for _ in row["answer"].split(" "))
    return [json.dumps(row) for row in found]


class Bundles:
    """The model's bundles, one for each storage and form of LoRA."""

    def __init__(self, folder: Path, model: str, chat_template: Path | None) -> None:
        self._folder, self._model, self._template = folder, model, chat_template

    def of(self, side: Side) -> Path:
        name = "-".join([side.storage, *(f"{key}-{value}" for key, value in side.adapter.items())])
        path = self._folder / f"{name}.bundle"
        if not path.exists():
            options = {"activation": side.storage, "chat_template": self._template, **side.adapter}
            mobile_ft.export_bundle(self._model, path, max_seq_len=SEQ_LEN, progress=False, **options)
        return path

    def size(self) -> dict[str, int]:
        """The number of layers, and of weights of a dense layer and of the head."""
        c = read_bundle(self.of(Side())).model
        heads = 2 * (c.num_attention_heads + c.num_key_value_heads) * c.head_dim
        weights = c.hidden_size * (heads + 3 * c.intermediate_size)
        return {
            "layers": c.num_hidden_layers,
            "layer_weights": weights,
            "head_weights": c.hidden_size * c.vocab_size,
        }


def learn(folder: Path, bundles: Bundles, runs: list[Run], results: Results, jobs: int) -> None:
    """Runs the runs without results, several at once, and saves each result."""
    unknown = list(dict.fromkeys(run for run in runs if run.name not in results.losses))
    for run in unknown:
        bundles.of(SIDES[run.side])
    with Progress() as progress, ThreadPoolExecutor(jobs) as pool:
        task = progress.add_task("runs", total=len(unknown))
        futures = {pool.submit(outcome, folder, bundles, run): run for run in unknown}
        try:
            for future in as_completed(futures):
                run = futures[future]
                results.losses[run.name], right = future.result()
                if right is not None:
                    results.right[run.name] = [right, QUESTIONS]
                results.save()
                progress.console.print(f"{run.name}: {results.losses[run.name]:.4f}")
                progress.advance(task)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # current runs end first
            raise


def outcome(folder: Path, bundles: Bundles, run: Run) -> tuple[float, int | None]:
    """Returns the held-out loss after the last step, in float32 (infinite if the run diverged), and for long runs the
    number of correct answers."""
    side = SIDES[run.side]
    # With exact storage, the result is the same as with recomputation, bit for bit.
    options: dict[str, Any] = {"backward": "store"} | side.options
    with tempfile.TemporaryDirectory(dir=folder) as out:
        try:
            result = mobile_ft.train(
                bundles.of(side),
                folder / (side.data or run.data),
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
                **options,
            )
        except mobile_ft.UserError as error:
            if "not finite" in str(error):
                return float("inf"), None
            raise
        right = None
        if run.steps == LONG_STEPS:
            right = right_answers(folder, bundles.of(side), result.adapter)
        return result.evals[-1][1], right


def right_answers(folder: Path, bundle: Path, adapter: Path | None) -> int:
    """Returns the number of gsm8k's questions whose answer has the correct number after ####."""
    model = mobile_ft.load(bundle, adapter)
    right = 0
    for line in (folder / "questions.jsonl").read_text().splitlines():
        row = json.loads(line)
        answer = model.generate(row["question"], max_tokens=ANSWER_TOKENS).text
        right += number_in(answer) is not None and number_in(answer) == number_in(row["answer"])
    return right


def number_in(answer: str) -> str | None:
    _, mark, number = answer.partition("####")
    words = number.replace(",", "").replace("$", "").split()
    return words[0].rstrip(".") if mark and words else None


def measure_seconds(folder: Path, bundles: Bundles, results: Results, only: str, rounds: int, steps: int = 16) -> None:
    """Measures the mean step time of each side and budget in turn, and the time of dropbp's measurement."""
    timed = [(name, budget) for name, budget in TIMED if only in timing(name, budget)]
    for name, _ in timed:
        bundles.of(SIDES[name])
    with Progress() as progress:
        task = progress.add_task("runs", total=rounds * len(timed))
        for done in range(rounds):
            for name, budget in timed:
                progress.advance(task)
                if len(results.seconds.get(timing(name, budget), [])) > done:
                    continue
                step, measuring = timed_run(folder, bundles.of(SIDES[name]), SIDES[name], budget, steps)
                results.seconds.setdefault(timing(name, budget), []).append(step)
                if measuring is not None:
                    results.measuring.setdefault(timing(name, budget), []).append(measuring)
                progress.console.print(f"{timing(name, budget)}: {step:.3f} s")
                results.save()


def timed_run(folder: Path, bundle: Path, side: Side, budget: int, steps: int) -> tuple[float, float | None]:
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=folder) as out:
        mobile_ft.train(
            bundle,
            folder / "gsm8k",
            out,
            progress=False,
            seq_len=SEQ_LEN,
            steps=steps,
            budget=f"{budget}MB",
            callbacks=[events.append],
            **BUDGETS[budget] | side.options,
        )
    seconds = [event["seconds"] for event in events if event["event"] == "step"]
    # The first step verifies weights, so it counts like the second. All others count, because those of `freeze` get
    # cheaper.
    step = mean([seconds[1], *seconds[1:]])
    measured = any(event["event"] == "sensitivities" for event in events)
    return step, seconds[0] - step if measured else None


if __name__ == "__main__":
    main()
