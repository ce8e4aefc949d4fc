"""Rates of answers with guessed tokens, against the same answers token by token, in turn.

    python benchmarks/bench_lookahead.py [--rounds 5] [--tokens 200]

The runtime guesses how an answer goes on, and computes the guesses beside the last token. The answer is the same.
SmolLM2-135M answers questions that repeat much, such as lists, and little, such as stories.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import mobile_ft
from mobile_ft.bundle.description import read_bundle, read_tokenizer
from mobile_ft.runtime import GenerateConfig, Generator, Model

QUESTIONS = {
    "story": "Write a story about a lighthouse keeper and a cat.",
    "facts": "Tell me facts about the sea.",
    "poem": "Write a long poem about rain.",
    "towns": "Invent thirty unusual names of towns.",
    "numbers": 'List the numbers from 1 to 60, each on its own line as "Number N is N."',
    "code": "Write a Python class Stack with push, pop, peek, is_empty and size, and tests for each.",
    "JSON": "Give me a JSON list of five people with name, age and city.",
    "rewrite": "Correct the spelling: The quik brown fox jumps ovr the lazy dog while the rain in Spain fals mainly on "
    "the plain, and the sun rises over the distant blue mountans.",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200, help="of an answer, at most")
    args = parser.parse_args()
    table = Table("question", "temperature", "tokens", "one by one, tokens/s", "with guesses, tokens/s", "ratio")
    with tempfile.TemporaryDirectory() as temporary:
        bundle = Path(temporary) / "bundle"
        mobile_ft.export_bundle("smollm2-135m", bundle, max_seq_len=512, progress=False)
        tokenizer, model = read_tokenizer(read_bundle(bundle)), Model(str(bundle))
        model.prepare("", Generator.prompt_tokens)
        generator = Generator(model)
        for name, question in QUESTIONS.items():
            prompt = tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": question}], True, None, None))
            for temp in (0.0, 0.8):
                config = GenerateConfig(max_tokens=args.tokens, temp=temp, seed=1, stop_tokens=list(tokenizer.end_ids))
                one = GenerateConfig(max_tokens=1, temp=temp, stop_tokens=list(tokenizer.end_ids))
                generator.logits_after(prompt, config)  # the next calls begin behind it
                alone, guessed, answer = [], [], []
                for _ in range(args.rounds):
                    start = time.perf_counter()
                    answer = generator.generate(prompt, config)
                    guessed.append(time.perf_counter() - start)
                    text, start = list(prompt), time.perf_counter()
                    for token in answer:
                        generator.generate(text, one)
                        text.append(token)
                    if len(answer) < args.tokens:
                        generator.generate(text, one)  # the end token
                    alone.append(time.perf_counter() - start)
                rates = [len(answer) / statistics.median(seconds) for seconds in (alone, guessed)]
                ratio = f"{rates[1] / rates[0]:.2f}"
                table.add_row(name, str(temp), str(len(answer)), *(f"{rate:.1f}" for rate in rates), ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
