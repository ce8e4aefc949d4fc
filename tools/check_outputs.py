"""Checks every output of `mobile-ft convert` in its target program: `check_outputs.py DATA`, a folder with two texts.

Fine-tunes SmolLM2-135M on valid.txt, converts it, and runs each program on windows of test.txt. Compares its loss, and
its next tokens after three texts, with our own runtime. Prints the table of docs/benchmarks.md.
Needs `pip install mobile-ft[outputs]`. Programs that are not installed are skipped.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mobile_ft
from mobile_ft.api.results import megabytes
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.export.source.gguf_model import builtin_model
from mobile_ft.runtime import Model

WINDOWS, LENGTH = 4, 128  # windows of test.txt and their tokens, for the loss
PROMPTS = ("The capital of France is", "def add(a, b):\n    return", "Once upon a time, there was a little")
ANSWER = 12  # tokens
TRAINING: dict[str, Any] = {"seq_len": 128, "steps": 40, "lr": 1e-3, "warmup_steps": 0}

Logits = Callable[[list[int]], np.ndarray]  # returns the logits of every token, [tokens, vocab]


class Checks:
    """Windows, answers, and the losses of our own runtime without and with the adapter."""

    def __init__(self, bundle: Path, adapter: Path, text: str) -> None:
        tokenizer = Tokenizer(bundle)
        tokens = tokenizer.encode(text[:20000])
        self.windows = [tokens[i * LENGTH : (i + 1) * LENGTH + 1] for i in range(WINDOWS)]
        self.prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
        ours, base = in_our_runtime(bundle, adapter), in_our_runtime(bundle, None)
        self.answers = [greedy(ours, prompt) for prompt in self.prompts]
        self.tuned, self.base = self.loss(ours), self.loss(base)

    def loss(self, logits: Logits) -> float:
        losses = []
        for window in self.windows:
            values = torch.from_numpy(logits(window[:-1])).double()
            losses.append(torch.nn.functional.cross_entropy(values, torch.tensor(window[1:])).item())
        return float(np.mean(losses))

    def same_tokens(self, logits: Logits) -> int:
        """Returns the number of next tokens that are the same as in our runtime."""
        count = 0
        for prompt, answer in zip(self.prompts, self.answers, strict=True):
            found = logits(prompt + answer[:-1])[len(prompt) - 1 :].argmax(-1)
            count += int((found == np.array(answer)).sum())
        return count


def greedy(logits: Logits, prompt: list[int]) -> list[int]:
    answer: list[int] = []
    for _ in range(ANSWER):
        answer.append(int(logits(prompt + answer)[-1].argmax()))
    return answer


def in_our_runtime(bundle: Path, adapter: Path | None) -> Logits:
    model = Model(str(bundle))
    model.prepare("" if adapter is None else str(adapter), LENGTH)
    return lambda tokens: model.logits(np.array(tokens), np.arange(len(tokens)))


def in_transformers(model: Any) -> Logits:
    def run(tokens: list[int]) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor([tokens])).logits[0].float().numpy()

    return run


def in_llama_cpp(path: Path, lora: Path | None = None) -> Logits:
    from llama_cpp import Llama

    adapter = None if lora is None else str(lora)
    model = Llama(str(path), lora_path=adapter, logits_all=True, n_ctx=2 * LENGTH, verbose=False)

    def run(tokens: list[int]) -> np.ndarray:
        model.reset()
        model.eval(tokens)
        return model.scores[: len(tokens)].copy()

    return run


def in_mlx(base: Path, adapter: Path) -> Logits:
    import mlx.core
    from mlx_lm import load

    model, _ = load(str(base), adapter_path=str(adapter))
    model.set_dtype(mlx.core.float32)
    return lambda tokens: np.array(model(mlx.core.array([tokens]))[0])


def in_onnxruntime(folder: Path) -> Logits:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    past = {x.name: np.zeros((1, x.shape[1], 0, x.shape[3]), np.float32) for x in session.get_inputs()[3:]}

    def run(tokens: list[int]) -> np.ndarray:
        ids = np.array([tokens])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.size)[None]}
        return session.run(["logits"], inputs | past)[0][0]

    return run


def in_executorch(folder: Path) -> Logits:
    """Runs token by token, because the program returns only the last token's logits."""
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(str(folder / "model.pte")).load_method("forward")

    def run(tokens: list[int]) -> np.ndarray:
        steps = (method.execute([torch.tensor([[t]]), torch.tensor([i])])[0] for i, t in enumerate(tokens))
        return np.array([step.numpy()[0].copy() for step in steps])

    return run


def outputs(bundle: Path, adapter: Path, work: Path) -> Iterator[tuple[str, Path, Callable[[], Logits], Logits | None]]:
    """Yields a name, the written file, a function that runs it, and a function that runs it without the adapter if the
    program rounds activations."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    def written(name: str, to: Any, **options: Any) -> Path:
        start = time.monotonic()
        made = mobile_ft.convert(bundle, options.pop("adapter", adapter), work / name, to=to, progress=False, **options)
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        return made.output

    gguf = builtin_model("smollm2-135m")
    assert gguf is not None

    def peft() -> Logits:
        base = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        return in_transformers(PeftModel.from_pretrained(base, written("peft", "peft")))

    yield "`peft`, on the GGUF's weights, in PEFT", work / "peft", peft, None
    hf = written("hf", "hf")
    yield (
        "`hf`, in Transformers, float32",
        hf,
        lambda: in_transformers(AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32)),
        None,
    )
    if installed("bitsandbytes"):
        nf4 = written("hf-nf4", "hf", quant="nf4")
        yield (
            "`hf --quant nf4`, in Transformers and bitsandbytes",
            nf4,
            lambda: in_transformers(AutoModelForCausalLM.from_pretrained(nf4)),
            None,
        )
    if installed("llama_cpp"):
        lora = written("lora.gguf", "gguf-lora")
        float_base = written("base.gguf", "gguf", adapter=bundle)
        yield "`gguf-lora`, on the Q4_1 GGUF, in llama.cpp", lora, lambda: in_llama_cpp(gguf, lora), in_llama_cpp(gguf)
        yield "`gguf-lora`, on `gguf` of the base", lora, lambda: in_llama_cpp(float_base, lora), None
        for quant in ("f16", "q8_0", "iq4_nl", "q4_1", "q4_0"):
            path = written(f"{quant}.gguf", "gguf", quant=quant)
            yield f"`gguf --quant {quant}`, in llama.cpp", path, partial(in_llama_cpp, path), None
    if installed("mlx"):
        base = written("base-hf", "hf", adapter=bundle)
        mlx = written("mlx", "mlx")
        yield "`mlx`, on `hf` of the base, in mlx-lm, float32", mlx, lambda: in_mlx(base, mlx), None
    if installed("onnxruntime"):
        onnx = written("onnx", "onnx")
        yield "`onnx`, in onnxruntime", onnx, lambda: in_onnxruntime(onnx), None
    program = written("executorch", "executorch")
    yield "`executorch`, in ExecuTorch's runtime", program, lambda: in_executorch(program), None


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        work = Path(folder)
        bundle, adapter = work / "bundle", work / "adapter"
        mobile_ft.export_bundle("smollm2-135m", bundle, max_seq_len=LENGTH, activation="exact")
        mobile_ft.train(bundle, args.data / "valid.txt", adapter, progress=False, **TRAINING)
        checks = Checks(bundle, adapter, (args.data / "test.txt").read_text(encoding="utf-8"))
        rows = ["| output | size | loss, theirs - ours | change by the adapter, theirs - ours | same next tokens |"]
        rows.append("|---|---|---|---|---|")
        for name, path, load, base in outputs(bundle, adapter, work):
            logits = load()
            loss, same = checks.loss(logits), checks.same_tokens(logits)
            change = "" if base is None else f"{loss - checks.loss(base) - (checks.tuned - checks.base):+.4f}"
            total = ANSWER * len(PROMPTS)
            rows.append(
                f"| {name} | {megabytes(size_of(path))} | {loss - checks.tuned:+.5f} | {change} | {same} of {total} |"
            )
            print(rows[-1], flush=True)
        print(f"\nOurs: {checks.base:.4f} before, {checks.tuned:.4f} after, of {WINDOWS * LENGTH} tokens\n")
        print("\n".join(rows))


if __name__ == "__main__":
    main()
