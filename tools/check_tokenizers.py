"""Compares the runtime's tokenizer with Hugging Face's: `python -m tools.check_tokenizers --data DIR TOKENIZER.json
...`.

Uses rows of GSM8K and WikiText-2 in DIR, and random Unicode texts. Prints the number of texts with a different token,
decoded text or byte span of a token, and the time for 1 MB of WikiText-2.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer as HfTokenizer

from mobile_ft.runtime._core import Tokenizer
from tests.runtime.test_tokenizer import spans, texts

MEGABYTE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="TOKENIZER.json")
    parser.add_argument("--data", type=Path, required=True, help="folder with gsm8k/ and wikitext2/")
    parser.add_argument("--random", type=int, default=10_000, help="number of random texts (default: 10000)")
    args = parser.parse_args()
    wiki = (args.data / "wikitext2" / "test.txt").read_text()
    rows = wiki.splitlines(keepends=True) + (args.data / "gsm8k" / "test.jsonl").read_text().splitlines()
    table = Table("tokenizer", "texts", "other tokens", "other text", "other bytes", "s/MB", "Hugging Face's")
    for file in args.files:
        table.add_row(str(file), *compare(file, rows + list(texts(args.random)), wiki))
    Console().print(table)


def compare(file: Path, rows: list[str], wiki: str) -> list[str]:
    hf, ours = HfTokenizer.from_file(str(file)), Tokenizer(str(file))
    tokens = spelled = covered = 0
    for row in rows:
        expected = hf.encode(row, add_special_tokens=False)
        ids, found = ours.encode(row)
        tokens += ids != expected.ids
        spelled += ours.decode(ids) != hf.decode(ids, skip_special_tokens=False)
        changed = hf.normalizer is not None and hf.normalizer.normalize_str(row) != row
        covered += not changed and found != spans(row, expected.offsets)
    times = [seconds(encode, wiki) for encode in (ours.encode, hf.encode)]
    return [str(n) for n in (len(rows), tokens, spelled, covered)] + [f"{t:.2f}" for t in times]


def seconds(encode: Callable[[str], object], text: str) -> float:
    """Returns the time per MB."""
    part = text[:MEGABYTE]
    start = time.perf_counter()
    encode(part)
    return (time.perf_counter() - start) * MEGABYTE / len(part.encode())


if __name__ == "__main__":
    main()
