"""Compares the kernels with PyTorch on dense float32 weights, and instruction sets and int8 with our own float32 with
256-bit registers, in one process and in turn: `python benchmarks/bench_kernels.py`.

Every ratio is the other time divided by ours: above 1, our kernel is faster.
"""

import argparse
import ctypes
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention

from mobile_ft.model.formats import FORMATS, PANEL_ROWS, packed_shape, parse_format
from mobile_ft.runtime import instruction_set, instruction_sets
from mobile_ft.runtime._core import kernels

M, RANK, SCALE = 256, 16, 2.0
DEFAULT_FORMATS = ["q4_0", "q4_1", "q4_1_g64", "nf4_g64", "q8_0", "f16"]  # g64: bitsandbytes has groups of 64
PAUSE, MIN_SECONDS = 0.02, 0.01
SHAPES = [(576, 1536), (1536, 576), (896, 4864), (4864, 896), (2048, 8192), (8192, 2048)]  # (K, N)
HEADS = {"SmolLM2-135M": (9, 3, 64), "Qwen2.5-0.5B": (14, 2, 64)}  # heads, key-value heads, dim
BASELINE = instruction_sets()[0]  # 256 bits on x86, 128 on ARM
VOCABULARIES = [(49152, 576), (262144, 640)]  # entries, K

Row = dict[str, Any]
TimeSides = Callable[..., dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, choices=sorted({1, kernels.thread_count()}))
    parser.add_argument("--rounds", type=int, default=9, help="timings of each side (default: 9)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=DEFAULT_FORMATS, metavar="FORMAT")
    parser.add_argument(
        "--best", action="store_true", help="compare the best times instead of medians, for a busy machine"
    )
    parser.add_argument("--quick", action="store_true", help="3 rounds of the smallest shapes")
    parser.add_argument(
        "--only", help="print only one table: linear, int8, int15, lora, attention, linear_cross_entropy, scratch"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    threads = args.threads or kernels.thread_count()
    torch.set_num_threads(threads)
    kernels.use_threads(threads > 1)
    torch.manual_seed(0)
    pin_threads()
    keep_freed_memory()

    peak = max(kernels.fma_peak_gflops() for _ in range(30))
    time_sides = partial(in_turn, 3 if args.quick else args.rounds, min if args.best else median)
    some = slice(2 if args.quick else None)
    weights = [(k, n, fmt) for k, n in SHAPES[some] for fmt in args.formats if k % parse_format(fmt).group == 0]
    heads = [(model, t) for model in HEADS for t in [256, 1024, 4096][some]]
    vocabularies = [(v, k, fmt) for v, k in VOCABULARIES[: 1 if args.quick else 2] for fmt in ("q4_1", "q8_0")]
    results: dict[str, Any] = {
        "threads": threads,
        "instruction_set": instruction_set(),
        "fma_peak_gflops": peak,
        "statistic": "best" if args.best else "median",
        "torch": torch.__version__,
    }
    print(f"{threads} threads, {instruction_set()}, FMA peak {peak:.0f} GFLOP/s, {results['statistic']} times")
    print(f"torch {torch.__version__} on dense float32 weights; ratio: torch's time / ours")
    sets = kernels_to_compare()
    tables: dict[str, tuple[str, Callable[[], list[Row]]]] = {
        "linear": (
            "Linear layer, 256 rows, no LoRA: forward, and input gradient",
            lambda: [linear_row(time_sides, peak, *case) for case in weights],
        ),
        "int8": (
            f"Linear layer, 256 rows, no LoRA: speed relative to float32 on {BASELINE}",
            lambda: [int8_row(time_sides, sets, *case) for case in weights],
        ),
        "int15": (
            "Linear layer in 15 bits, as prompts are read: speed relative to float32",
            lambda: [int15_row(time_sides, *case) for case in weights],
        ),
        "lora": (
            f"Linear layer with LoRA rank {RANK}, q4_1; backward with both LoRA gradients",
            lambda: [lora_row(time_sides, k, n) for k, n in SHAPES[some]],
        ),
        "attention": (
            "Attention, forward and backward",
            lambda: [attention_row(time_sides, peak, *case) for case in heads],
        ),
        "linear_cross_entropy": (
            "Loss and gradient of the head, 256 rows",
            lambda: [cross_entropy_row(time_sides, peak, *case) for case in vocabularies],
        ),
        "scratch": (
            f"Scratch of a linear layer with LoRA rank {RANK}",
            lambda: [scratch_row(threads, m, k, n) for m in (256, 2048) for k, n in (SHAPES[0], SHAPES[-1])],
        ),
    }
    for name, (title, rows) in tables.items():
        if args.only in (None, name):
            results[name] = rows()
            print_rows(title, results[name])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


def pin_threads() -> None:
    """Pins this thread to the first CPU, and the workers of torch's pool and of ours to the others in turn.

    The kernel may wake a sleeping worker on its caller's CPU, which both then share for milliseconds, so that two
    threads take the time of one. In training, no pool sleeps that long.
    """
    x = torch.ones(1 << 20)
    x += x  # starts torch's pool; the next line starts ours
    kernels.fma_peak_gflops()
    first, *others = sorted(os.sched_getaffinity(0))
    workers = sorted(int(thread) for thread in os.listdir("/proc/self/task"))
    workers.remove(os.getpid())  # the others are in order of creation, so that those of a pool are neighbours
    os.sched_setaffinity(0, {first})
    for i, worker in enumerate(workers if others else []):
        os.sched_setaffinity(worker, {others[i % len(others)]})


def keep_freed_memory() -> None:
    """Makes outputs reuse memory, as in training, on both sides. New pages would take up to an eighth of the time of
    the fastest kernels."""
    libc = ctypes.CDLL(None)
    for parameter in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
        assert libc.mallopt(parameter, 32 << 20) == 1  # the most there is


def in_turn(rounds: int, statistic: Callable[[list[float]], float], **sides: Callable[[], object]) -> dict[str, float]:
    """Returns the seconds per call of each side, timed over at least 10 ms.

    Both thread pools spin for a few ms after a call, so that their own next call starts fast but the other pool lacks
    cores. So each side first pauses until the other's threads sleep, and makes a call to wake its own.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    calls = {}
    for name, side in sides.items():
        side()
        calls[name] = max(1, int(MIN_SECONDS / call_seconds(side, 1)))
    for _ in range(rounds):
        for name, side in sides.items():
            time.sleep(PAUSE)
            side()
            seconds[name].append(call_seconds(side, calls[name]))
    return {name: statistic(values) for name, values in seconds.items()}


def call_seconds(side: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        side()
    return (time.perf_counter() - start) / calls


def random_weight(name: str, rows: int, cols: int) -> tuple[Any, Tensor]:
    """Returns a packed weight with values of about 1 / sqrt(cols), and the same weight in dense form."""
    rng = np.random.default_rng(0)
    fmt, spread = parse_format(name), 1 / cols**0.5
    data = rng.integers(0, 256, packed_shape(name, rows, cols), dtype=np.uint8)
    if fmt.kind == "f16":
        data.view(np.float16)[:] = rng.standard_normal((*data.shape[:2], data.shape[2] // 2), np.float32) * spread
    else:
        scale = spread / {"q8_0": 74, "q8_1": 74, "q4_0": 4.6, "q4_1": 4.6, "iq4_nl": 68}.get(
            fmt.kind, 0.6
        )  # the codes' standard deviation
        data[..., : PANEL_ROWS * np.dtype(fmt.scale_dtype).itemsize].view(fmt.scale_dtype)[:] = scale
        if fmt.kind in ("q4_1", "q8_1"):
            data[..., 32:64].view(np.float16)[:] = (-7.5 if fmt.kind == "q4_1" else -127.5) * scale
    weight = kernels.Weight(data, name, rows)
    return weight, torch.from_numpy(kernels.decode(weight))


def linear_row(time_sides: TimeSides, peak: float, k: int, n: int, fmt: str) -> Row:
    weight, dense = random_weight(fmt, n, k)
    x, dy = torch.randn(M, k), torch.randn(M, n)
    t = time_sides(
        forward=lambda: kernels.linear_forward(x.numpy(), weight),
        torch_forward=lambda: linear(x, dense),
        backward=lambda: kernels.linear_backward(dy.numpy(), weight),
        torch_backward=lambda: dy @ dense,
    )
    row: Row = {"KxN": f"{k}x{n}", "format": fmt}
    for name, short in (("forward", "fwd"), ("backward", "bwd")):
        gflops = 2e-9 * M * k * n / t[name]
        row |= {
            f"{short} ms": 1e3 * t[name],
            f"{short} torch ms": 1e3 * t[f"torch_{name}"],
            f"{short} ratio": t[f"torch_{name}"] / t[name],
            f"{short} GFLOP/s": gflops,
            f"{short} % of peak": 100 * gflops / peak,
        }
    return row


def lora_row(time_sides: TimeSides, k: int, n: int) -> Row:
    weight, dense = random_weight("q4_1", n, k)
    x, dy, a, b = torch.randn(M, k), torch.randn(M, n), torch.randn(RANK, k), torch.randn(n, RANK)
    lora = a.numpy(), b.numpy(), SCALE

    def torch_backward() -> tuple[Tensor, ...]:
        g = SCALE * (dy @ b)
        return dy @ dense + g @ a, g.T @ x, SCALE * (dy.T @ linear(x, a))

    t = time_sides(
        forward=lambda: kernels.linear_forward(x.numpy(), weight, *lora),
        plain_forward=lambda: kernels.linear_forward(x.numpy(), weight),
        torch_forward=lambda: linear(x, dense) + SCALE * linear(linear(x, a), b),
        backward=lambda: kernels.linear_lora_backward(dy.numpy(), x.numpy(), weight, *lora),
        plain_backward=lambda: kernels.linear_backward(dy.numpy(), weight),
        torch_backward=torch_backward,
    )
    row: Row = {"KxN": f"{k}x{n}"}
    # Multiply-adds of the branch relative to those of the weight.
    counts = {"forward": RANK * (k + n), "backward": RANK * (3 * k + 2 * n)}
    for name, short in (("forward", "fwd"), ("backward", "bwd")):
        row |= {
            f"{short} ms": 1e3 * t[name],
            f"{short} LoRA adds %": 100 * (t[name] / t[f"plain_{name}"] - 1),
            f"{short} by count %": 100 * counts[name] / (k * n),
            f"{short} torch ms": 1e3 * t[f"torch_{name}"],
            f"{short} ratio": t[f"torch_{name}"] / t[name],
        }
    return row


def kernels_to_compare() -> list[tuple[str, str]]:
    """Returns the kernels to compare with the baseline: float32 of the best instruction set, and int8 of all except
    plain AVX-512."""
    best = instruction_sets()[-1]
    return [(best, "float32"), *((name, "int8") for name in instruction_sets() if name != "avx512")]


def int8_row(time_sides: TimeSides, sets: list[tuple[str, str]], k: int, n: int, fmt: str) -> Row:
    """Returns the speed relative to the baseline's float32, for forward and input gradient, and the errors of int8."""
    weight, dense = random_weight(fmt, n, k)
    x, dy = torch.randn(M, k).numpy(), torch.randn(M, n).numpy()

    def forward(name: str, compute: str) -> Any:
        kernels.use_instruction_set(name)
        return kernels.linear_forward(x, weight, compute=compute)

    def backward(name: str, compute: str) -> Any:
        kernels.use_instruction_set(name)
        return kernels.linear_backward(dy, weight, compute=compute)

    every = [(BASELINE, "float32"), *sets]
    t = time_sides(
        **{f"fwd {name} {compute}": partial(forward, name, compute) for name, compute in every},
        **{f"bwd {name} {compute}": partial(backward, name, compute) for name, compute in every},
    )
    row: Row = {"KxN": f"{k}x{n}", "format": fmt}
    for name, compute in sets:
        for way in ("fwd", "bwd"):
            row[f"{way} {name} {compute}"] = t[f"{way} {BASELINE} float32"] / t[f"{way} {name} {compute}"]
    exact = torch.from_numpy(x).double() @ dense.double().T, torch.from_numpy(dy).double() @ dense.double()
    best = sets[-1]
    for way, ours, reference in zip(("fwd", "bwd"), (forward(*best), backward(*best)), exact, strict=True):
        row[f"{way} error %"] = 100 * float((torch.from_numpy(ours) - reference).norm() / reference.norm())
    kernels.use_instruction_set(instruction_sets()[-1])
    return row


def int15_row(time_sides: TimeSides, k: int, n: int, fmt: str) -> Row:
    weight, _ = random_weight(fmt, n, k)
    row: Row = {"KxN": f"{k}x{n}", "format": fmt}
    for m in (32, M):
        x = torch.randn(m, k).numpy()
        sides = {name: partial(kernels.linear_forward, x, weight, compute=name) for name in ("float32", "int15")}
        t = time_sides(**sides)
        row[f"{m} rows"] = t["float32"] / t["int15"]
    return row


def attention_row(time_sides: TimeSides, peak: float, model: str, tokens: int) -> Row:
    """Compares with torch in two ways: with enable_gqa, and with keys and values expanded to all heads first."""
    heads, kv_heads, dim = HEADS[model]
    q, k, v, do = (torch.randn(tokens, h * dim) for h in (heads, kv_heads, kv_heads, heads))
    arrays = [x.numpy() for x in (q, k, v)]
    positions = np.arange(tokens)
    # [1, heads, T, dim] views, as in Transformers.
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    query, key, value = (x.view(1, tokens, -1, dim).transpose(1, 2) for x in leaves)
    grad = do.view(1, tokens, heads, dim).transpose(1, 2)

    def ours(compute: str) -> object:
        o, lse = kernels.attention_forward(*arrays, positions, heads, kv_heads, compute=compute)
        return kernels.attention_backward(do.numpy(), *arrays, o, lse, positions, heads, kv_heads, compute=compute)

    def torch_gqa() -> object:
        o = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return torch.autograd.grad(o, leaves, grad)

    def torch_expanded() -> object:
        keys, values = (x.repeat_interleave(heads // kv_heads, 1) for x in (key, value))
        o = scaled_dot_product_attention(query, keys, values, is_causal=True)
        return torch.autograd.grad(o, leaves, grad)

    t = time_sides(ours=partial(ours, "float32"), int8=partial(ours, "int8"), gqa=torch_gqa, expanded=torch_expanded)
    gflops = 7e-9 * heads * tokens**2 * dim / t["ours"]  # 2 products forward, 5 backward, half of each masked
    return {
        "heads of": model,
        "T": tokens,
        "ms": 1e3 * t["ours"],
        "torch gqa ms": 1e3 * t["gqa"],
        "torch expanded ms": 1e3 * t["expanded"],
        "ratio": min(t["gqa"], t["expanded"]) / t["ours"],
        "GFLOP/s": gflops,
        "% of peak": 100 * gflops / peak,
        "int8 ms": 1e3 * t["int8"],
        "int8 ratio": min(t["gqa"], t["expanded"]) / t["int8"],
        "scratch kB": kernels.attention_scratch_bytes(tokens, heads, kv_heads, dim) / 1e3,
        "int8 scratch kB": kernels.attention_scratch_bytes(tokens, heads, kv_heads, dim, "int8") / 1e3,
    }


def cross_entropy_row(time_sides: TimeSides, peak: float, entries: int, k: int, fmt: str) -> Row:
    """Logits have a standard deviation of 1, so no tile is negligible and skipped."""
    weight, dense = random_weight(fmt, entries, k)
    x, targets = torch.randn(M, k), torch.randint(entries, (M,))
    leaf = x.clone().requires_grad_()
    t = time_sides(
        ours=lambda: kernels.linear_cross_entropy(x.numpy(), weight, targets.numpy()),
        int8=lambda: kernels.linear_cross_entropy(x.numpy(), weight, targets.numpy(), compute="int8"),
        torch=lambda: torch.autograd.grad(cross_entropy(linear(leaf, dense), targets, reduction="sum"), leaf),
    )
    gflops = 4e-9 * M * entries * k / t["ours"]
    return {
        "vocabulary": entries,
        "K": k,
        "format": fmt,
        "ms": 1e3 * t["ours"],
        "torch ms": 1e3 * t["torch"],
        "ratio": t["torch"] / t["ours"],
        "GFLOP/s": gflops,
        "% of peak": 100 * gflops / peak,
        "int8 ms": 1e3 * t["int8"],
        "int8 ratio": t["torch"] / t["int8"],
        "scratch MB": kernels.scratch_bytes(M, entries, k, 0)["linear_cross_entropy"] / 1e6,
    }


def scratch_row(threads: int, m: int, k: int, n: int) -> Row:
    size = kernels.scratch_bytes(m, n, k, RANK)["linear"]
    return {"M": m, "KxN": f"{k}x{n}", "MB": size / 1e6, "MB per thread": size / threads / 1e6}


def print_rows(title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(text(value) for value in row.values()))
    Console(width=200).print(table)


def text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 20 else f"{value:.0f}"
    return str(value)


if __name__ == "__main__":
    main()
