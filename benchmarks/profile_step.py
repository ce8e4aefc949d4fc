"""Profiles a training step: run `mobile-ft train ... --json run.json`, then `profile_step.py run.json`.

Reads the runtime's counters: seconds by method of the program and by op. For a run with full-length sequences and the
schedule `full`, it also prints the GFLOP/s of the ops that multiply matrices; the peak is measured by this script.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mobile_ft.bundle.description import read_bundle
from mobile_ft.model.shapes import linear_shapes, unit_types


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="JSON file of `mobile-ft train --json`")
    parser.add_argument("--bundle", type=Path, help="bundle, to print GFLOP/s; the run must have schedule full")
    args = parser.parse_args()
    run = json.loads(args.run.read_text())
    steps = run["steps"]
    total = run["tokens"] / run["tokens_per_second"]
    work = op_gflop(args.bundle, run) if args.bundle else {}
    print_times("method", run["method_seconds"], steps, total, {})
    print_times("op", run["op_seconds"], steps, total, work)


def op_gflop(folder: Path, run: dict[str, Any]) -> dict[str, float]:
    """Returns the FLOPs of a step by op, 2 per multiply-add. Causal attention counts half of the scores."""
    if run["schedule"] != "full" or sum(run["stored"].values()) > 0:
        raise SystemExit("profile_step: GFLOP are counted for --schedule full --backward recompute")
    bundle = read_bundle(folder)
    c, rank = bundle.model, bundle.lora.rank
    tokens = run["tokens"] / run["steps"]
    units = [list(linear_shapes(c, 0, unit).values()) for unit in unit_types(c, 0)]
    forward = sum(k * n + rank * (k + n) for unit in units for k, n in unit)
    again = sum(
        k * n + rank * (k + n) for unit in units for k, n in unit[:-1]
    )  # the last linear layer is not recomputed
    backward = sum(k * n + rank * (3 * k + 2 * n) for unit in units for k, n in unit)
    scores = c.num_attention_heads * c.head_dim * tokens
    per_layer = {
        "packed_linear": forward + again,
        "packed_linear_lora_backward": backward,
        "attention": 2 * scores,
        "attention_backward": 2.5 * scores,
    }
    per_token = {name: c.num_hidden_layers * n for name, n in per_layer.items()}
    per_token["linear_cross_entropy"] = 2 * c.vocab_size * c.hidden_size
    return {f"mobile_ft::{name}.out": 2e-9 * tokens * n for name, n in per_token.items()}


def print_times(what: str, counted: dict[str, Any], steps: int, total: float, work: dict[str, float]) -> None:
    """Prints the times, slowest first, and the rest."""
    from mobile_ft.runtime._core import kernels

    peak = max(kernels.fma_peak_gflops() for _ in range(10)) if work else 0.0
    table = Table(title=f"By {what}; {total / steps * 1e3:.0f} ms per step", title_justify="left")
    table.add_column(what)
    for column in ["calls per step", "ms per step", "share"] + (["GFLOP", "GFLOP/s", f"of {peak:.0f}"] if work else []):
        table.add_column(column, justify="right")
    rest = total
    for name, entry in sorted(counted.items(), key=lambda item: -item[1]["seconds"]):
        seconds = entry["seconds"]
        rest -= seconds
        row = [f"{entry['calls'] / steps:.0f}", f"{seconds / steps * 1e3:.1f}", f"{seconds / total:.1%}"]
        if name in work:
            rate = work[name] * steps / seconds
            row += [f"{work[name]:.1f}", f"{rate:.0f}", f"{rate / peak:.0%}"]
        table.add_row(name.removeprefix("mobile_ft::").removesuffix(".out"), *row)
    table.add_row("everything else", "", f"{rest / steps * 1e3:.1f}", f"{rest / total:.1%}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
