"""`make demo`: fine-tunes SmolLM2-135M on short dialogues within 300 MB and shows the result.

It uses only the command line, like a user. Its output is in ./demo-out.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from dialogues import write_data

from mobile_ft.cli.output import print_table

OUT = Path("demo-out")
PROMPT = "What is a compiler?"
STEPS, SEQ_LEN = 150, 256
# On average, half of the layers per step. It learned more than `suffix` with half in the same time (docs/quality.md).
TRAINING = f"--schedule freeze --ratio 0.5 --budget 300MB --steps {STEPS} --seq-len {SEQ_LEN}".split()


def main() -> None:
    start = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    data, bundle, adapter = OUT / "data", OUT / "smollm2.bundle", OUT / "adapter"
    write_data(data)
    mobile_ft("export", "smollm2-135m", "-o", bundle, "--max-seq-len", SEQ_LEN)
    before = results("eval", bundle, "--data", data)
    answer_before = answer(bundle)
    training = results("train", bundle, "--data", data, *TRAINING, "--out", adapter)
    after = results("eval", bundle, "--data", data, "--adapter", adapter)
    answer_after = answer(bundle, "--adapter", adapter)

    report = {
        "loss_before": before["loss"],
        "loss_after": after["loss"],
        "loss_change_percent": 100 * (after["loss"] / before["loss"] - 1),
        "held_out_tokens": after["tokens"],
        "prompt": PROMPT,
        "answer_before": answer_before,
        "answer_after": answer_after,
        "seconds": time.monotonic() - start,
        "training": training,
    }
    (OUT / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    draw(report, OUT / "training.png")
    print_report(report)


def mobile_ft(*arguments: object, capture: bool = False) -> str:
    """Runs the command line; its output is shown or, with `capture`, returned. Ends the demo on failure."""
    words = [str(argument) for argument in arguments]
    print("\n$ mobile-ft", *(repr(word) if " " in word else word for word in words), flush=True)
    command = [sys.executable, "-m", "mobile_ft.cli.main", *words]
    result = subprocess.run(command, stdout=subprocess.PIPE if capture else None, encoding="utf-8")
    if result.returncode:
        sys.exit(result.returncode)  # the command has printed the error
    return result.stdout or ""


def results(*arguments: object) -> dict[str, Any]:
    """Runs a command and returns its `--json` output."""
    file = OUT / "results.json"
    mobile_ft(*arguments, "--json", file)
    values: dict[str, Any] = json.loads(file.read_text())
    file.unlink()
    return values


def answer(bundle: Path, *options: object) -> str:
    text = mobile_ft("generate", bundle, "--prompt", PROMPT, "--max-tokens", 60, *options, capture=True)
    print(text)
    return text.strip()


def draw(report: dict[str, Any], path: Path) -> None:
    """Plots loss and memory by step."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    training = report["training"]
    steps = np.arange(1, len(training["losses"]) + 1)
    window = 25
    smooth = np.convolve(training["losses"], np.ones(window) / window, mode="valid")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(steps, training["losses"], color="0.85", label="training loss per step")
    left.plot(steps[window - 1 :], smooth, color="C0", linewidth=2, label=f"training loss, mean of {window} steps")
    ends = [0, len(steps)], [report["loss_before"], report["loss_after"]]
    left.plot(*ends, "o", color="C3", markersize=8, label="held-out loss, before and after")
    for step, loss in zip(*ends, strict=True):
        left.annotate(f"{loss:.2f}", (step, loss), (0, 8), textcoords="offset points", ha="center", color="C3")
    left.set(xlabel="step", ylabel="loss", title="Loss")
    left.legend(loc="upper right")
    right.axhline(training["budget_mb"], color="C3", linestyle="--", label="budget")
    right.axhline(training["planned_mb"], color="C2", linestyle="--", label="planned peak")
    right.axhline(training["peak_rss_mb"], color="C0", linestyle=":", label="measured peak RSS")
    right.plot(steps, training["memory_mb"]["rss_mb"], color="C0", label="RSS after each step")
    right.plot(steps, training["memory_mb"]["anon_mb"], color="C1", label="anonymous memory")
    right.set(xlabel="step", ylabel="MB", ylim=(0, None), title="Memory of the training process")
    right.legend(loc="lower left")
    figure.savefig(path, dpi=120)


def print_report(report: dict[str, Any]) -> None:
    training = report["training"]
    rows = {
        "held-out loss before": f"{report['loss_before']:.3f}",
        "held-out loss after": f"{report['loss_after']:.3f} ({report['loss_change_percent']:+.1f} %)",
        "training speed": f"{training['tokens_per_second']:.0f} tokens/s",
        "budget": f"{training['budget_mb']:.0f} MB",
        "planned": f"{training['planned_mb']:.0f} MB",
        "measured: peak RSS": f"{training['peak_rss_mb']:.0f} MB",
        "measured: peak anonymous memory": f"{training['peak_anon_mb']:.0f} MB",
        "prompt": PROMPT,
        "answer before": report["answer_before"],
        "answer after": report["answer_after"],
        "whole demo": f"{report['seconds']:.0f} s",
    }
    print()
    print_table("SmolLM2-135M, LoRA on 4-bit weights", rows)
    print(f"{OUT} has training.png, report.json, and the adapter in PEFT's format in adapter/")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
