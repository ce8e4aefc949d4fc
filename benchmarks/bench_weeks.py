"""Two weeks of nights: `python benchmarks/bench_weeks.py GSM8K WIKITEXT2 --variant change --folder DIR --json FILE`.

Every night brings 40 rows. Three ways to learn from them, with the same training options:

    learner     mobile_ft.learn: replays older rows, holds out a share, adopts what is better
    naive       trains each night on that night's rows alone, from the night before on
    everything  one training on all rows with as many steps as the learner made in all: the bound

Variants: "plain" (dialogues), "change" (dialogues, and from the eighth night on GSM8K), "wrong" (dialogues; one row in
ten has the answer of another row). At the end, the loss after each night is computed on test rows of all topics, which
no way sees. General text is WikiText-2. A night that is in the JSON file is not repeated, if the folder with the
adapters is there.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))  # folder of the demo's data

from dialogues import write_data
from rich.console import Console
from rich.table import Table
from wikitext import write_wikitext

import mobile_ft
from mobile_ft.api.compare import compare
from mobile_ft.runtime import learn_options

NIGHTS, ROWS, TEST_ROWS = 14, 40, 240
SEQ_LEN = 256
VARIANTS = ("plain", "change", "wrong")
TRAINING = ("lr", "compute", "lora_train")  # options that the other ways take too
Row = dict[str, Any]
Results = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gsm8k", type=Path)
    parser.add_argument("wikitext2", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--chat-template", type=Path, help="for a model without one, such as gemma.jinja")
    parser.add_argument("--variant", choices=VARIANTS, default="change")
    parser.add_argument("--nights", type=int, default=NIGHTS)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of learn; may be repeated")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for adapters; kept, so that a run can go on")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    given = dict(option.split("=", 1) for option in args.option)
    key = " ".join([args.model, args.variant, str(args.nights), *args.option])
    all_results: dict[str, Results] = json.loads(args.json.read_text()) if args.json.exists() else {}
    results = all_results.setdefault(key, {})

    def save() -> None:
        args.json.write_text(json.dumps(all_results, indent=1) + "\n")

    weeks = Weeks(args.folder, args, given, results, save)
    for step in (weeks.learner, weeks.naive, weeks.everything, weeks.measure):
        step()
    show(key, results)
    if args.picture:
        draw(args.picture, key, results)


class Weeks:
    """The rows of all nights, and what is made of them."""

    def __init__(
        self,
        folder: Path,
        args: argparse.Namespace,
        options: dict[str, str],
        results: Results,
        save: Callable[[], None],
    ) -> None:
        self.folder, self.results, self.save = folder, results, save
        defaults = {option.name: option.default for option in learn_options() if option.name in ("lr", "epochs")}
        self.options = defaults | options
        self.bundle = folder / "bundle"
        if not self.bundle.exists():
            mobile_ft.export_bundle(
                args.model, self.bundle, max_seq_len=SEQ_LEN, chat_template=args.chat_template, progress=False
            )
            write_data(folder / "dialogues")
        dialogues = [rows_in(folder / "dialogues" / f"{split}.jsonl") for split in ("train", "valid")]
        gsm8k = [rows_in(args.gsm8k / f"{split}.jsonl") for split in ("train", "test")]
        draw = random.Random(0)
        for rows in dialogues:
            draw.shuffle(rows)
        self.nights: list[list[Row]] = []
        for night in range(args.nights):
            changed = args.variant == "change" and night >= args.nights // 2
            topic = gsm8k if changed else dialogues
            rows = [topic[0].pop() for _ in range(ROWS)]
            if args.variant == "wrong":
                spoil(rows, draw)
            self.nights.append([{"id": f"{night}-{i}"} | row for i, row in enumerate(rows)])
        unseen = dialogues[1] + dialogues[0]
        self.test = unseen[:TEST_ROWS]
        if args.variant == "change":
            self.test = unseen[: TEST_ROWS // 2] + gsm8k[1][: TEST_ROWS // 2]
        self.general = folder / "general.txt"
        write_wikitext(args.wikitext2, self.bundle, self.general)

    def learner(self) -> None:
        found = self.results.setdefault("learner", [])
        state, rows, steps = self.folder / "state", [], found[-1]["steps"] if found else 0

        def count(event: dict[str, Any]) -> None:
            nonlocal steps
            steps += event["event"] == "step"

        for number, night in enumerate(self.nights):
            rows += night
            if number < len(found):
                continue
            done = mobile_ft.learn(
                state, self.bundle, rows, progress=False, callbacks=[count], seq_len=SEQ_LEN, **self.options
            )
            name = f"version-{done.version}"
            if done.adapter is not None and not (self.folder / name).exists():
                shutil.copytree(done.adapter, self.folder / name)
            self.add(found, {"adapter": name, "steps": steps} | done.nights[-1].__dict__)

    def naive(self) -> None:
        found = self.results.setdefault("naive", [])
        for number, night in enumerate(self.nights):
            if number >= len(found):
                before = self.folder / f"naive-{number - 1}" if number > 0 else None
                self.train(night, f"naive-{number}", adapter=before, epochs=self.options["epochs"])
                self.add(found, {"adapter": f"naive-{number}"})

    def everything(self) -> None:
        found, steps = self.results.setdefault("everything", []), self.results["learner"][-1]["steps"]
        if not found:
            self.train([row for night in self.nights for row in night], "everything", steps=steps)
            self.add(found, {"adapter": "everything", "steps": steps})

    def train(self, rows: list[Row], name: str, **options: Any) -> None:
        taken: dict[str, Any] = {name: value for name, value in self.options.items() if name in TRAINING}
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        mobile_ft.train(self.bundle, rows, out, seq_len=SEQ_LEN, progress=False, **options, **taken)

    def add(self, found: list[Results], night: Results) -> None:
        found.append(night)
        print(json.dumps(night), flush=True)
        self.save()

    def measure(self) -> None:
        """Adds the loss of the test rows, per token and of each, and the perplexity of general text."""
        nights = [night for way in ("learner", "naive", "everything") for night in self.results[way]]
        if all("loss" in night for night in nights):
            return
        nights.append(self.results.setdefault("base", {"adapter": "version-0"}))
        names = sorted({night["adapter"] for night in nights} - {"version-0"})
        folders = {name: self.folder / name for name in names}
        compared = compare(self.bundle, self.test, list(folders.values()), seq_len=SEQ_LEN, progress=False)
        measured: dict[str, Results] = {}
        for name in ["version-0", *names]:
            folder = folders.get(name)
            side = "base" if folder is None else str(folder)
            text = mobile_ft.evaluate(self.bundle, self.general, adapter=folder, seq_len=SEQ_LEN, progress=False)
            rows = [row.losses[side] for row in compared.rows]
            measured[name] = {"loss": compared.losses[side], "losses": rows, "text": text.ppl}
        for night in nights:
            night |= measured[night["adapter"]]
        self.save()


def rows_in(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def spoil(rows: list[Row], draw: random.Random) -> None:
    """Gives a tenth of the rows the last answer of another row."""
    chosen = draw.sample(range(len(rows)), len(rows) // 10)
    answers = [rows[i]["messages"][-1] for i in chosen]
    for i, answer in zip(chosen, answers[1:] + answers[:1], strict=True):
        rows[i] = rows[i] | {"messages": [*rows[i]["messages"][:-1], answer]}


def interval(changes: list[float]) -> str:
    """The mean of paired changes, with its 95 % interval."""
    n = len(changes)
    mean = sum(changes) / n
    half = 1.98 * (sum((change - mean) ** 2 for change in changes) / (n - 1) / n) ** 0.5
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def show(key: str, results: Results) -> None:
    bound = results["everything"][0]
    table = Table(
        "way",
        "test loss per token",
        "over the bound, %",
        "learner less this one by row, 95 %",
        "general perplexity, %",
        title=key,
    )
    last = results["learner"][-1]
    rows = {"base model": results["base"], "learner": last, "naive": results["naive"][-1], "everything": bound}
    for name, found in rows.items():
        changes = [a - b for a, b in zip(last["losses"], found["losses"], strict=True)]
        table.add_row(
            name,
            f"{found['loss']:.4f}",
            f"{100 * (found['loss'] / bound['loss'] - 1):+.1f}",
            "" if found is last else interval(changes),
            f"{100 * (found['text'] / results['base']['text'] - 1):+.1f}",
        )
    Console().print(table)
    adopted = sum(night["adopted"] for night in results["learner"])
    print(f"{adopted} of {len(results['learner'])} nights adopted, {last['steps']} steps")


def draw(path: Path, key: str, results: Results) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (losses, general) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    nights = range(1, len(results["learner"]) + 1)
    for way, colour in (("learner", "#1f6fb4"), ("naive", "#c4572b")):
        losses.plot(nights, [night["loss"] for night in results[way]], label=way, color=colour)
        change = [100 * (night["text"] / results["base"]["text"] - 1) for night in results[way]]
        general.plot(nights, change, label=way, color=colour)
    kept = [night for night, found in zip(nights, results["learner"], strict=True) if found["adopted"]]
    losses.plot(kept, [results["learner"][night - 1]["loss"] for night in kept], "o", color="#1f6fb4", label="adopted")
    bound = results["everything"][0]
    losses.axhline(bound["loss"], color="#666", linestyle="--", label="training on everything")
    losses.set(xlabel="night", ylabel="loss of test rows", title=key)
    general.axhline(100 * (bound["text"] / results["base"]["text"] - 1), color="#666", linestyle="--")
    general.set(xlabel="night", ylabel="change of WikiText-2's perplexity, %")
    losses.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
