"""Next tokens and perplexity of int8 answers against float32, token by token over a text.

    python benchmarks/bench_answer_precision.py TEXT_FILE [--model MODEL] [--quant FORMAT ...] [--places 5000]
        [--prompt TOKENS]

TEXT_FILE is a text such as wikitext2's test.txt. MODEL is what `mobile-ft export` takes; it is exported in each FORMAT.
A place is clear if its two likeliest tokens differ by more than 0.1 in log-probability. The cached keys and values have
16 bits or 8; in float32 they have 32. With --prompt, the tokens before each place are computed anew, as one prompt.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.bundle.description import read_bundle, read_tokenizer
from mobile_ft.runtime import GenerateConfig, Generator, Model

WINDOW = 256  # tokens; each begins without the ones before it
CLEAR = 0.1


def next_tokens(bundle: Path, tokens: list[int], config: GenerateConfig) -> np.ndarray:
    """Returns [places, 3]: the likeliest token, its lead in log-probability, and the loss of the text's own token."""
    model = Model(str(bundle))
    model.prepare("", min(WINDOW, model.max_seq_len))
    generator, found = Generator(model), []
    for start in range(0, len(tokens) - 1, WINDOW - 1):
        window = tokens[start : start + WINDOW]
        for i in range(1, len(window)):
            found.append(place(generator.logits_after(window[:i], config), window[i]))
    return np.array(found)


def after_prompts(bundle: Path, tokens: list[int], config: GenerateConfig, length: int) -> np.ndarray:
    """Returns what `next_tokens` returns, of the places after prompts of this length that follow one another."""
    model = Model(str(bundle))
    model.prepare("", Generator.prompt_tokens)
    generator, found = Generator(model), []
    for start in range(0, len(tokens) - length, length):
        logits = generator.logits_after(tokens[start : start + length], config)
        found.append(place(logits, tokens[start + length]))
    return np.array(found)


def place(logits: np.ndarray, token: int) -> tuple[int, float, float]:
    logits = logits.astype(np.float64)
    second, first = np.argsort(logits)[-2:]
    return first, logits[first] - logits[second], np.logaddexp.reduce(logits) - logits[token]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, metavar="TEXT_FILE")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--quant", nargs="+", default=[None], help="for a model in floats; by default as it is")
    parser.add_argument("--places", type=int, default=5000)
    parser.add_argument("--prompt", type=int, metavar="TOKENS", help=f"at most {WINDOW}")
    args = parser.parse_args()
    table = Table("format", "cache, bits", "same token, %", f"if clear (lead > {CLEAR}), %", "perplexity ratio")
    for quant in args.quant:
        with tempfile.TemporaryDirectory() as temporary:
            bundle = Path(temporary) / "bundle"
            mobile_ft.export_bundle(args.model, bundle, max_seq_len=WINDOW + 1, quant=quant, progress=False)
            count = args.places * (args.prompt or 1) + 1
            text = args.text.read_text(encoding="utf-8")[: 20 * count]
            tokens = read_tokenizer(read_bundle(bundle)).encode(text)[:count]
            find = partial(after_prompts, length=args.prompt) if args.prompt else next_tokens
            float32 = find(bundle, tokens, GenerateConfig(compute="float32"))
            clear = float32[:, 1] > CLEAR
            for bits in ("16", "8"):
                int8 = find(bundle, tokens, GenerateConfig(compute="int8", kv_bits=bits))
                same = int8[:, 0] == float32[:, 0]
                ratio = np.exp(int8[:, 2].mean() - float32[:, 2].mean())
                table.add_row(
                    quant or "its own",
                    bits,
                    f"{100 * same.mean():.2f}",
                    f"{100 * same[clear].mean():.2f} of {clear.sum()}",
                    f"{ratio:.5f}",
                )
    Console().print(table)


if __name__ == "__main__":
    main()
