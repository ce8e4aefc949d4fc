"""Measures step time and memory of schedules in PyTorch: `python benchmarks/bench_schedules.py`.

A LLaMA-style model with random weights is trained with AdamW. Sides run a step in turn, and medians are reported.
"kept" is the memory that the forward keeps for the backward, by `SavedTensors`, averaged over the steps. If there is a
GPU, it is used, in bfloat16.
"""

import argparse
import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import torch
import transformers as tf
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from torch import nn

from mobile_ft.pytorch import SavedTensors, Schedule, Scheduled

CONFIG: dict[str, Any] = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
CONFIG["num_attention_heads"] = 12
VOCABULARY, BATCH, TOKENS = 8192, 4, 128
SCHEDULES = {
    "full": Schedule(),
    "dropbp 0.5": Schedule("dropbp", ratio=0.5, steps=1000),
    "dropbp 0.75": Schedule("dropbp", ratio=0.25, steps=1000),
    "lcsb 1/2": Schedule("lcsb", ratio=0.5),
    "suffix 1/2": Schedule("suffix", ratio=0.5),
    "lisa, 2 layers": Schedule("lisa", ratio=0.17, period=1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="steps of each side (default: 7)")
    args = parser.parse_args()
    table = Table("trained", "schedule", "step, s", "relative to full", "kept, MB", "peak, MB")
    for trained in ("all", "LoRA, rank 16"):
        for row in measure(trained, args.rounds):
            table.add_row(trained, *row)
    Console(width=120).print(table)


def measure(trained: str, rounds: int) -> Iterator[list[str]]:
    """Yields a row per schedule."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(0)
    model: Any = tf.LlamaForCausalLM(tf.LlamaConfig(**CONFIG, vocab_size=VOCABULARY))
    model.to(device, torch.bfloat16 if cuda else torch.float32)
    if trained != "all":
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS), device=device)
    seconds: dict[str, list[float]] = {name: [] for name in SCHEDULES}
    kept: dict[str, list[int]] = {name: [] for name in SCHEDULES}
    peaks: dict[str, list[int]] = {name: [] for name in SCHEDULES}
    for step in range(rounds + 1):  # the first does not count
        for name, schedule in SCHEDULES.items():
            with Scheduled(model, schedule) as scheduled:
                scheduled.begin(step)
                optimizer.zero_grad()
                if cuda:
                    torch.cuda.synchronize()
                    torch.cuda.reset_peak_memory_stats()
                start = time.perf_counter()
                model(input_ids=tokens, labels=tokens).loss.backward()
                optimizer.step()
                if cuda:
                    torch.cuda.synchronize()
                    peaks[name].append(torch.cuda.max_memory_allocated())
                if step > 0:
                    seconds[name].append(time.perf_counter() - start)
                kept[name].append(bytes_kept(model, tokens))
    full = median(seconds["full"])
    for name in SCHEDULES:
        step_seconds = median(seconds[name])
        peak = f"{max(peaks[name][1:]) / 1e6:.0f}" if cuda else ""
        yield [name, f"{step_seconds:.3f}", f"{step_seconds / full:.2f}", f"{mean(kept[name]) / 1e6:.0f}", peak]


def bytes_kept(model: nn.Module, tokens: torch.Tensor) -> int:
    with SavedTensors(model) as saved:
        model(input_ids=tokens, labels=tokens)
    return saved.bytes


if __name__ == "__main__":
    main()
