"""Rates of answers: the prompt and the tokens after it, ours and llama.cpp's on the same GGUF file, in turn.

    python benchmarks/bench_answers.py [--model FILE.gguf] [--prompts 32,256] [--tokens 128] [--rounds 5]

Medians over the rounds, in tokens per second. Prompts are random tokens. llama.cpp comes from llama-cpp-python, of the
extra `outputs`; without it, ours are measured alone. If its build for this CPU uses AMX and the kernel does not allow
that, llama.cpp crashes: build it with GGML_NATIVE=OFF then.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file, save_file

import mobile_ft
from mobile_ft.export.source.gguf_model import builtin_model
from mobile_ft.runtime import GenerateConfig, Generator, Model
from mobile_ft.runtime._core import kernels

Answer = Callable[[list[int], int], tuple[float, float]]  # prompt, tokens -> seconds of each


def ours(bundle: Path, adapter: str, compute: str) -> Answer:
    model = Model(str(bundle))
    model.prepare(adapter, Generator.prompt_tokens)

    def answer(prompt: list[int], tokens: int) -> tuple[float, float]:
        generator, config, text = Generator(model), GenerateConfig(compute=compute), list(prompt)
        start = time.perf_counter()
        generator.logits_after(text, config)
        first = time.perf_counter()
        for token in prompt[:1] * tokens:  # given, so that none is guessed and computed beside another
            text.append(token)
            generator.logits_after(text, config)
        return first - start, time.perf_counter() - first

    answer([1, 2, 3], 2)  # verifies the weights
    return answer


def llama_cpp(file: Path, threads: int, context: int) -> Answer:
    import llama_cpp as library

    model: Any = library.Llama(str(file), n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)

    def next_token() -> int:
        logits = library.llama_get_logits_ith(model._ctx.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (model.n_vocab(),))))

    def answer(prompt: list[int], tokens: int) -> tuple[float, float]:
        model.reset()
        start = time.perf_counter()
        model.eval(prompt)
        token, first = next_token(), time.perf_counter()
        for _ in range(tokens):
            model.eval([token])
            token = next_token()
        return first - start, time.perf_counter() - first

    answer([1, 2, 3], 2)
    return answer


def random_adapter(bundle: Path, folder: Path) -> str:
    """An adapter of the bundle's rank on all linear layers whose B is not zero."""
    rng = np.random.default_rng(0)
    tensors = load_file(bundle / "adapter_model.safetensors")
    drawn = {n: x if "lora_A" in n else (0.01 * rng.standard_normal(x.shape)).astype("f4") for n, x in tensors.items()}
    folder.mkdir()
    save_file(drawn, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text((bundle / "adapter_config.json").read_text())
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FILE.gguf",
        default=builtin_model("smollm2-135m"),
        help="default: SmolLM2-135M, the built-in model",
    )
    parser.add_argument("--prompts", default="32,256,1024", help="lengths, separated by commas")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    lengths = [int(length) for length in args.prompts.split(",")]
    context = max(lengths) + args.tokens + 2
    file: Path = args.model
    with tempfile.TemporaryDirectory() as temporary:
        bundle = Path(temporary) / "bundle"
        mobile_ft.export_bundle(file, bundle, max_seq_len=context, progress=False)
        adapter = random_adapter(bundle, Path(temporary) / "adapter")
        sides = {
            "int8": ours(bundle, "", "int8"),
            "int8, rank-16 adapter": ours(bundle, adapter, "int8"),
            "float32": ours(bundle, "", "float32"),
        }
        if find_spec("llama_cpp"):
            sides["llama.cpp"] = llama_cpp(file, kernels.thread_count(), context)
        table = Table("", *(f"{what}, {n} tokens" for n in lengths for what in ("prompt", "answer after")))
        rows: dict[str, list[str]] = {side: [side] for side in sides}
        for length in lengths:
            prompt = np.random.default_rng(length).integers(5, 40000, length).tolist()
            seconds: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            for _ in range(args.rounds):
                for side, answer in sides.items():
                    seconds[side].append(answer(prompt, args.tokens))
            for side, found in seconds.items():
                of_prompt, of_answer = (statistics.median(times) for times in zip(*found, strict=True))
                rows[side] += [f"{length / of_prompt:.0f}", f"{args.tokens / of_answer:.1f}"]
        for row in rows.values():
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
