"""Compares models known by name, with random weights: `python benchmarks/bench_models.py qwen3.5-0.8b lfm3-1.7b`.

A step has 256 tokens, batch 1, LoRA of rank 16 on all linear layers, and AdamW. Each model trains in its own process,
under a hard memory limit of the budget and of what the process's code needs. `--peer` also trains it with PyTorch, PEFT
and bitsandbytes' NF4, with checkpointing, in turn.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_step import LR, RANK, Result, run
from rich.console import Console
from rich.table import Table

Sides = dict[str, list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="names as in `mobile-ft models`")
    parser.add_argument("--budget", default="1GiB", help="memory budget (default: 1GiB)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a step (default: 256)")
    parser.add_argument("--steps", type=int, default=5, help="timed steps per run (default: 5)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each side (default: 1)")
    parser.add_argument(
        "--option", action="append", default=[], help="an option of mft-run, such as --option=--compute=int8"
    )
    parser.add_argument("--peer", action="store_true", help="also run PyTorch + PEFT + bitsandbytes")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = {name: measure(name, args) for name in args.models}
    print_results(results, args)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the bundle's size and the medians of each side, for one model."""
    from mobile_ft import export_bundle
    from mobile_ft.data.packing import EncodedRow, pack, write_token_file
    from mobile_ft.runtime import mft_run_path

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_bundle(name, folder / "bundle", random_init=True, max_seq_len=args.tokens, progress=False)
        steps = args.steps + 2
        ids = np.random.default_rng(0).integers(10, 30000, (steps, args.tokens + 1), dtype=np.int32)
        write_token_file(folder / "data", pack([EncodedRow(row[:-1], row[1:]) for row in ids], args.tokens, 0))
        ours = [str(mft_run_path()), "train", str(folder / "bundle"), "--data", str(folder / "data")]
        ours += ["--steps", str(steps), "--seq-len", str(args.tokens), "--lr", str(LR), "--budget", args.budget]
        ours += [word for option in args.option for word in option.split("=", 1)]
        sides: Sides = {"mobile-ft": ours}
        if args.peer:
            sides["PyTorch"] = peer(name, folder, steps, args.tokens)
        runs: dict[str, list[Result]] = {side: [] for side in sides}
        for number in range(args.rounds):
            for side, command in sides.items():
                own = [*command, "--out", str(folder / f"out{number}")] if side == "mobile-ft" else command
                runs[side].append(run(own))
                print(f"{name}: {side}: {runs[side][-1]['step_seconds']:.2f} s", flush=True)
        command = [*ours[:1], "plan", *ours[2:3], *ours[5:]]
        planned = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        size = sum(path.stat().st_size for path in (folder / "bundle").iterdir())
    sides_result = {side: {key: median(r[key] for r in rounds) for key in rounds[0]} for side, rounds in runs.items()}
    return {"bundle_mb": size / 1e6, "planned_mb": json.loads(planned)["planned_mb"], "sides": sides_result}


def peer(name: str, folder: Path, steps: int, tokens: int) -> list[str]:
    """Writes the model with random weights in Transformers' format. Returns the command that trains it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from mobile_ft.model.hf_config import known_config

    path = known_config(name)
    assert path is not None
    values = json.loads(path.read_text())
    config = AutoConfig.for_model(**values).get_text_config()
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder / "model")
    command = [sys.executable, str(Path(__file__).with_name("bench_step.py")), "peer", "--model", str(folder / "model")]
    return [*command, "--data", str(folder / "data"), "--quant", "nf4", "--steps", str(steps), "--tokens", str(tokens)]


def print_results(results: dict[str, Any], args: argparse.Namespace) -> None:
    title = f"{args.tokens} tokens a step, LoRA rank {RANK}, budget {args.budget}"
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for column in ("bundle MB", "planned MB", "peak RSS MB", "peak anon MB", "step s"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        for side, values in result["sides"].items():
            ours = side == "mobile-ft"
            first = [f"{result['bundle_mb']:.0f}", f"{result['planned_mb']:.0f}"] if ours else ["", ""]
            memory = [f"{values['peak_rss_mb']:.0f}", f"{values['peak_anon_mb']:.0f}"]
            table.add_row(name if ours else f"  {side}", *first, *memory, f"{values['step_seconds']:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
