"""Measures memory and its effects: `bench_memory.py residuals|gradients|speed|plans|limits|budgets|lengths`.

residuals: bytes per token that units store, by --activation
gradients: error of the gradient by storage format
speed:     LCSB with stored activations against full backward with recomputation
plans:     planned and measured memory of five models, three lengths and two schedules
limits:    every model in a memory cgroup of 1 GiB
budgets:   step time from the smallest budget to no budget, as a figure
lengths:   memory and step time from 128 to 8192 tokens against PyTorch, as a figure

Bundles are exported once, to --folder. All models except SmolLM2 have random weights, because memory and speed do not
depend on the weights.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_step import run as run_side
from rich.console import Console
from rich.table import Table

from mobile_ft.bundle.description import ACTIVATIONS

SMOLLM2 = "smollm2-135m"
SHAPES = ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "llama-3.2-1b", "llama-3.2-3b", "gemma-3-1b", "gemma-3-4b"]
LCSB = ["--schedule", "lcsb", "--selection", "contiguous"]
SMALL = ["--optimizer", "adamw8bit", "--max-grad-norm", "0"]
GIB = "1073MB"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=list(BENCHMARKS))
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="folder for bundles and figures")
    parser.add_argument("--models", nargs="+", help="models, instead of the benchmark's own")
    parser.add_argument("--steps", type=int, default=3, help="steps per run; the first does not count (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, in turn (default: 3)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in BENCHMARKS[args.what](args):
        print("  ".join(f"{key} {text(value)}" for key, value in row.items()), flush=True)
        rows.append(row)
    print_rows(args.what, rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


# --- Runs --------------------------------------------------------------------------------------


def bundle(args: argparse.Namespace, model: str, most: int, activation: str = "exact") -> Path:
    """Returns the bundle of `model` for up to `most` tokens. Exports it if it does not exist."""
    folder: Path = args.folder / f"{model}-{most}-{activation}"
    if not folder.exists():
        options = [] if model == SMOLLM2 else ["--random-init"]
        command = [*mobile_ft("export"), model, "-o", str(folder), "--max-seq-len", str(most), *options]
        subprocess.run([*command, "--activation", activation], check=True, stdout=subprocess.DEVNULL)
    return folder


def mobile_ft(command: str) -> list[str]:
    return [sys.executable, "-m", "mobile_ft.cli.main", command]


def token_file(args: argparse.Namespace, bundle: Path, tokens: int) -> Path:
    """Writes random sequences of the full length, for which memory is planned."""
    from mobile_ft.bundle.description import read_bundle
    from mobile_ft.data.packing import EncodedRow, pack, write_token_file

    vocabulary = read_bundle(bundle).model.vocab_size
    path: Path = args.folder / f"tokens-{vocabulary}-{tokens}.safetensors"
    if not path.exists():
        rows = np.random.default_rng(0).integers(0, vocabulary, (4, tokens + 1)).astype(np.int32)
        write_token_file(path, pack([EncodedRow(row[:-1], row[1:]) for row in rows], tokens, 0))
    return path


def train(args: argparse.Namespace, bundle: Path, tokens: int, *options: str) -> Row:
    """Runs mft-run. Returns step_seconds, peak_rss_mb and peak_anon_mb."""
    from mobile_ft.runtime import mft_run_path

    out = args.folder / "out"
    subprocess.run(["rm", "-rf", str(out)], check=True)
    data = token_file(args, bundle, tokens)
    command = [str(mft_run_path()), "train", str(bundle), "--data", str(data), "--seq-len", str(tokens)]
    return run_side([*command, "--steps", str(args.steps), "--out", str(out), *options], warm_up=1)


def profile(args: argparse.Namespace, bundle: Path, tokens: int, *options: str) -> Row:
    """Runs `mobile-ft profile`. Returns its JSON, even if the run did not survive."""
    path = args.folder / "profile.json"
    path.unlink(missing_ok=True)
    command = [*mobile_ft("profile"), str(bundle), "--seq-len", str(tokens), "--steps", str(args.steps)]
    result = subprocess.run([*command, *options, "--json", str(path)], capture_output=True, text=True)
    if not path.exists():
        return {"survived": False, "error": result.stderr.strip().splitlines()[-1]}
    values: Row = json.loads(path.read_text())
    return values


def plan(bundle: Path, tokens: int, *options: str) -> Row:
    from mobile_ft.runtime import mft_run_path

    command = [str(mft_run_path()), "plan", str(bundle), "--seq-len", str(tokens), *options]
    values: Row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return values


# --- Benchmarks --------------------------------------------------------------------------------


def residuals(args: argparse.Namespace) -> Iterator[Row]:
    for model in args.models or [SMOLLM2, "qwen2.5-0.5b", "gemma-3-1b"]:
        sizes = {activation: saved_bytes(bundle(args, model, 512, activation)) for activation in ACTIVATIONS}
        for kind, exact in sizes["exact"].items():
            row = {"model": model, "unit": kind, "exact, B per token": exact}
            for activation in ACTIVATIONS[1:]:
                row[activation] = sizes[activation][kind]
                row[f"{activation}, less %"] = 100 * (1 - row[activation] / exact)
            yield row


def saved_bytes(bundle: Path) -> dict[str, float]:
    """Returns {kind: bytes per token that a storing unit keeps}."""
    description = json.loads((bundle / "bundle.json").read_text())
    items = {"float32": 4, "float16": 2, "int8": 1 + 4 / 128, "int4": 18 / 32, "uint8": 1}
    hidden = description["model"]["hidden_size"]
    return {
        kind: sum(items[t["stored"]] * abs(math.prod(t["shape"])) for t in entry["saved"])
        + (4 * hidden if entry["reads_x"] else 0)
        for kind, entry in description["kinds"].items()
    }


def gradients(args: argparse.Namespace) -> Iterator[Row]:
    """Uses 256 tokens of this repository's README. The adapter is new, so only its B has gradients."""
    from mobile_ft.data.tokenizer import Tokenizer
    from mobile_ft.runtime import Model, TrainConfig, Trainer

    text = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    folder = bundle(args, SMOLLM2, 512)
    tokens = np.array(Tokenizer(folder).encode(text)[:257], dtype=np.int64)
    exact = np.empty(0)
    for activation, backward in (
        ("exact", "store"),
        ("int8", "store"),
        ("int4", "store"),
        ("approx2bit", "recompute"),
        ("approx2bit", "store"),
    ):
        config = TrainConfig(backward=backward, compute="float32")
        trainer = Trainer(Model(str(bundle(args, SMOLLM2, 512, activation))), config)
        trainer.accumulate(tokens[:-1], tokens[1:], np.arange(256), [True] * 30)
        values = np.concatenate([gradient.ravel() for _, gradient in sorted(trainer.gradients().items())]).astype(float)
        exact = exact if exact.size else values
        size = np.linalg.norm(exact)
        yield {
            "activation": activation,
            "backward": backward,
            "cosine to exact": float(values @ exact / size / np.linalg.norm(values)),
            "error": float(np.linalg.norm(values - exact) / size),
        }


def speed(args: argparse.Namespace) -> Iterator[Row]:
    """Compares with full backward with our recomputation, which leaves out a unit's last linear layer, and with a whole
    recomputed forward, as in MeBP's blocks and PyTorch's checkpointing: the time of a step that stores, plus its
    forwards."""
    for model in args.models or [SMOLLM2, "qwen2.5-1.5b"]:
        sides = speed_sides(model)
        runs: dict[str, list[Row]] = {name: [] for name in sides}
        for _ in range(args.rounds):
            for name, (activation, options) in sides.items():
                runs[name].append(train(args, bundle(args, model, 512, activation), 256, *options))
        seconds = {name: median(r["step_seconds"] for r in rounds) for name, rounds in runs.items()}
        first = runs["full, recompute"]
        whole = seconds["full, stored"] + seconds["full, recompute"] * median(r["forward_share"] for r in first)
        for name, rounds in runs.items():
            peaks = {key: median(r[key] for r in rounds) for key in ("peak_rss_mb", "peak_anon_mb")}
            yield {
                "model": model,
                "side": name,
                "step s": seconds[name],
                "times faster": seconds["full, recompute"] / seconds[name],
                "than whole": whole / seconds[name],
                "peak RSS MB": peaks["peak_rss_mb"],
                "peak anon MB": peaks["peak_anon_mb"],
                "of full's": peaks["peak_anon_mb"] / median(r["peak_anon_mb"] for r in first),
            }
        yield {"model": model, "side": "full, whole forward again", "step s": whole}


def speed_sides(model: str) -> dict[str, tuple[str, list[str]]]:
    """Returns {name: (storage format of activations, options)}."""
    sides = {
        "full, recompute": ("exact", ["--backward", "recompute"]),
        "full, stored": ("exact", ["--backward", "store"]),
        "lcsb half, recompute": ("exact", LCSB),
        "lcsb half, stored": ("exact", [*LCSB, "--backward", "store"]),
        "lcsb half, approx2bit stored": ("approx2bit", [*LCSB, "--backward", "store"]),
        "lcsb half, int8 stored": ("int8", [*LCSB, "--backward", "store"]),
        "the same, adamw8bit, updates at once": ("int8", [*LCSB, "--backward", "store", *SMALL]),
    }
    if model == SMOLLM2:
        sides["the same, in 80 MB"] = ("int8", [*LCSB, "--budget", "80MB", *SMALL])
    return sides


def plans(args: argparse.Namespace) -> Iterator[Row]:
    bundles = {
        SMOLLM2: "exact",
        "qwen2.5-0.5b": "int8",
        "qwen2.5-1.5b": "exact",
        "llama-3.2-1b": "int8",
        "gemma-3-1b": "approx2bit",
    }
    for model in args.models or bundles:
        folder = bundle(args, model, 1024, bundles.get(model, "exact"))
        for tokens in (128, 256, 1024):
            for schedule in ("full", "lcsb"):
                options = ["--schedule", schedule]
                # A budget halfway between the smallest that works and storing everything, which mixes all policies.
                least = plan(folder, tokens, *options)["smallest_budget_mb"]
                budget = (least + plan(folder, tokens, *options, "--budget", "1000GB")["planned_mb"]) / 2
                p = profile(args, folder, tokens, *options, "--budget", f"{budget:.0f}MB")
                yield {
                    "bundle": folder.name,
                    "T": tokens,
                    "schedule": schedule,
                    "budget MB": budget,
                    "planned anon MB": p["planned_anon_mb"],
                    "peak anon MB": p["peak_anon_mb"],
                    "error %": 100 * (p["planned_anon_mb"] / p["peak_anon_mb"] - 1),
                    "peak RSS MB": p["peak_rss_mb"],
                    "survived": p["survived"],
                    "enforced by": p["enforced_by"],
                }


def limits(args: argparse.Namespace) -> Iterator[Row]:
    for model in args.models or [SMOLLM2, *SHAPES]:
        folder = bundle(args, model, 512)
        for name, options in {"fp32 moments": [], "adamw8bit, at once": SMALL}.items():
            p = profile(args, folder, 256, "--budget", GIB, *options)
            keys = ("survived", "planned_anon_mb", "peak_anon_mb", "peak_rss_mb", "step_seconds_median", "error")
            yield {"model": model, "optimizer": name} | {key: p.get(key) for key in keys}


def budgets(args: argparse.Namespace) -> Iterator[Row]:
    results: dict[str, list[tuple[int, float]]] = {}
    for model in args.models or [SMOLLM2, "qwen2.5-0.5b"]:
        folder = bundle(args, model, 512)
        unlimited = plan(folder, 256, "--budget", "1000GB")
        least, most = unlimited["smallest_budget_mb"] + 1, unlimited["planned_mb"]
        runs: dict[int, list[Row]] = {
            math.ceil(least + share * (most - least)): [] for share in (0, 0.1, 0.25, 0.5, 0.75, 1)
        }
        for _ in range(args.rounds):
            for budget, rounds in runs.items():
                rounds.append(train(args, folder, 256, "--budget", f"{budget}MB"))
        for budget, rounds in runs.items():
            seconds = min(r["step_seconds"] for r in rounds)
            results.setdefault(model, []).append((budget, seconds))
            mix = plan(folder, 256, "--budget", f"{budget}MB")
            yield {
                "model": model,
                "budget MB": budget,
                "step s": seconds,
                "peak RSS MB": max(r["peak_rss_mb"] for r in rounds),
                "stored": sum(mix["stored"].values()),
                "recomputed": mix["checkpoints"],
                "offloaded": mix["offloaded"],
                "planned s": mix["step_seconds"],
            }
    figure, axes = new_figure(1)
    for model, points in results.items():
        axes[0].plot(*zip(*points, strict=True), marker="o", label=model)
    axes[0].set(xlabel="budget, MB", ylabel="seconds per step", title="256 tokens, full backward", ylim=(0, None))
    axes[0].legend()
    figure.savefig(args.folder / "budgets.svg")


def lengths(args: argparse.Namespace) -> Iterator[Row]:
    folder = bundle(args, SMOLLM2, 8192)
    model = args.folder / "smollm2-transformers"
    peer = [sys.executable, str(Path(__file__).with_name("bench_step.py")), "peer", "--model", str(model)]
    if not model.exists():
        subprocess.run([*peer, "--data", "none", "--save"], check=True, capture_output=True)
    sides: dict[str, list[tuple[int, Row]]] = {}
    for tokens in (128, 256, 512, 1024, 2048, 4096, 8192):
        data = token_file(args, folder, tokens)
        theirs = [*peer, "--data", str(data), "--quant", "nf4", "--tokens", str(tokens), "--steps", str(args.steps)]
        results = {"mobile-ft": train(args, folder, tokens, *LCSB, "--budget", "620MB")}
        try:
            results["PyTorch + PEFT + NF4"] = run_side(theirs, warm_up=1)
        except SystemExit as error:  # the longest sequence may not fit the machine
            print(error, file=sys.stderr)
        for name, result in results.items():
            sides.setdefault(name, []).append((tokens, result))
            keys = ("step_seconds", "peak_rss_mb", "peak_anon_mb")
            yield {"T": tokens, "side": name} | {key: result[key] for key in keys}
    figure, axes = new_figure(2)
    for axis, key, label in zip(
        axes, ("peak_anon_mb", "step_seconds"), ("peak anonymous MB", "s per step"), strict=True
    ):
        for name, points in sides.items():
            axis.plot([t for t, _ in points], [result[key] for _, result in points], marker="o", label=name)
        axis.set(xlabel="tokens", ylabel=label, xscale="log", yscale="log")
        axis.set_xticks([128, 512, 2048, 8192], ["128", "512", "2048", "8192"])
        axis.legend()
    figure.savefig(args.folder / "lengths.svg")


BENCHMARKS = {
    "residuals": residuals,
    "gradients": gradients,
    "speed": speed,
    "plans": plans,
    "limits": limits,
    "budgets": budgets,
    "lengths": lengths,
}

# --- Output ------------------------------------------------------------------------------------


def new_figure(count: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(5 * count, 3.6), squeeze=False, layout="constrained")
    return figure, axes[0]


def print_rows(title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(text(row.get(name)) for name in rows[0]))
    Console(width=180).print(table)


def text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1 else f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return "-" if value is None else str(value)


if __name__ == "__main__":
    main()
