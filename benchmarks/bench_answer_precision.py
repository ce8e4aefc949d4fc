"""Next tokens and perplexity of int8 answers against float32, token by token over a text.

    python benchmarks/bench_answer_precision.py TEXT_FILE [--bundle BUNDLE] [--places 2048]

TEXT_FILE is a text such as wikitext2's test.txt. Without --bundle, SmolLM2-135M is exported. A place is clear if its
two likeliest tokens differ by more than 0.1 in log-probability.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.bundle.description import read_bundle, read_tokenizer
from mobile_ft.runtime import GenerateConfig, Generator, Model

WINDOW = 256  # tokens; each begins without the ones before it
CLEAR = 0.1


def next_tokens(bundle: Path, tokens: list[int], compute: str) -> np.ndarray:
    """Returns [places, 3]: the likeliest token, its lead in log-probability, and the loss of the text's own token."""
    model = Model(str(bundle))
    model.prepare("", min(WINDOW, model.max_seq_len))
    generator, config, found = Generator(model), GenerateConfig(compute=compute), []
    for start in range(0, len(tokens) - 1, WINDOW - 1):
        window = tokens[start : start + WINDOW]
        for i in range(1, len(window)):
            logits = generator.logits_after(window[:i], config).astype(np.float64)
            second, first = np.argsort(logits)[-2:]
            loss = np.logaddexp.reduce(logits) - logits[window[i]]
            found.append((first, logits[first] - logits[second], loss))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, metavar="TEXT_FILE")
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--places", type=int, default=2048)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        bundle = args.bundle or Path(temporary) / "bundle"
        if args.bundle is None:
            mobile_ft.export_bundle("smollm2-135m", bundle, max_seq_len=WINDOW + 1, progress=False)
        text = args.text.read_text(encoding="utf-8")[: 20 * args.places]
        tokens = read_tokenizer(read_bundle(bundle)).encode(text)[: args.places + 1]
        int8, float32 = (next_tokens(bundle, tokens, compute) for compute in ("int8", "float32"))
    same, clear = int8[:, 0] == float32[:, 0], float32[:, 1] > CLEAR
    perplexities = np.exp([int8[:, 2].mean(), float32[:, 2].mean()])
    table = Table("", "int8 against float32")
    table.add_row("places", str(len(same)))
    table.add_row("same likeliest token", f"{100 * same.mean():.2f} %")
    table.add_row(f"the same at the {clear.sum()} clear places", f"{100 * same[clear].mean():.2f} %")
    table.add_row(
        "perplexity", f"{perplexities[0]:.4f} and {perplexities[1]:.4f}, ratio {np.divide(*perplexities):.5f}"
    )
    Console().print(table)


if __name__ == "__main__":
    main()
