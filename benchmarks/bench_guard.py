"""Does the learner tell good nights from bad ones: `python benchmarks/bench_guard.py GSM8K --folder DIR --json FILE`.

A learner has had three nights of 40 rows of GSM8K. From there, its fourth night is tried with the rows of 20 seeds:

    real      40 other rows
    shuffled  the same rows, with their answers exchanged at random among them

Then 20 first nights, of a learner that had none, with real rows. The guard should adopt the real nights and reject the
shuffled ones. Nights in the JSON file are not run again, if the folder with the learner is there.
"""

import argparse
import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import mobile_ft

SEEDS, NIGHTS, ROWS, SEQ_LEN = 20, 3, 40, 256
KINDS = ("real", "shuffled", "first")
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gsm8k", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--chat-template", type=Path, help="for a model without one, such as gemma.jinja")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of learn; may be repeated")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the learner; kept, so that a run can go on")
    args = parser.parse_args()
    options = dict(option.split("=", 1) for option in args.option)
    results: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json.exists() else {}
    warnings.simplefilter("ignore", mobile_ft.MobileFtWarning)  # about rows that are too long
    bundle, begun, state = (args.folder / name for name in ("bundle", "begun", "state"))
    if not bundle.exists():
        mobile_ft.export_bundle(
            args.model, bundle, max_seq_len=SEQ_LEN, chat_template=args.chat_template, progress=False
        )
    rows = [json.loads(line) for line in (args.gsm8k / "train.jsonl").read_text().splitlines()]
    random.Random(0).shuffle(rows)

    def night(state: Path, new: list[Row], name: str) -> dict[str, Any]:
        named = [{"id": f"{name}-{i}"} | row for i, row in enumerate(new)]
        done = mobile_ft.learn(state, bundle, named, progress=False, seq_len=SEQ_LEN, **options)
        return done.nights[-1].__dict__

    done = len(mobile_ft.versions(begun).nights) if begun.exists() else 0
    for number in range(done, NIGHTS):
        verdict = night(begun, rows[number * ROWS : (number + 1) * ROWS], f"night {number}")
        print(f"night {number + 1}: {verdict['why']}", flush=True)
    for seed in range(SEEDS):
        for kind in KINDS:
            key = f"{Path(args.model).stem}/{kind}/{seed}" + "".join(f" {option}" for option in args.option)
            if key in results:
                continue
            draw = random.Random(seed)
            new = draw.sample(rows[NIGHTS * ROWS :], ROWS)
            shutil.rmtree(state, ignore_errors=True)
            if kind != "first":
                shutil.copytree(begun, state)
            results[key] = night(state, exchanged(new, draw) if kind == "shuffled" else new, f"{kind} {seed}")
            args.json.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{key}: {results[key]['why']}", flush=True)
    show(results)


def exchanged(rows: list[Row], draw: random.Random) -> list[Row]:
    answers = [row["answer"] for row in rows]
    draw.shuffle(answers)
    return [row | {"answer": answer} for row, answer in zip(rows, answers, strict=True)]


def show(results: dict[str, Any]) -> None:
    table = Table("night", "adopted", "held-out rows", "gain", "chance, %", "general, %")
    counts: dict[str, list[bool]] = {}
    for key, verdict in results.items():
        model, kind, _ = key.split("/")
        counts.setdefault(f"{model}/{kind}", []).append(verdict["adopted"])
        table.add_row(
            key,
            "yes" if verdict["adopted"] else "no",
            str(verdict["rows"]),
            f"{verdict['gain']:.4f}",
            f"{100 * verdict['chance']:.2f}",
            f"{100 * (verdict['general'] - 1):+.1f}",
        )
    Console().print(table)
    for name, adopted in counts.items():
        print(f"{name}: {sum(adopted)} of {len(adopted)} adopted")


if __name__ == "__main__":
    main()
