"""Measures memory and time of tokenization: `bench_data.py BUNDLE [--rows gsm8k/train.jsonl]`.

For long texts (paragraphs, and one very long line), `mobile-ft train` runs one step; the peak is that of the whole
command, including the training process. With `--rows`, questions and answers, a process tokenizes the rows as they are,
as chats of four questions, and as texts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mobile_ft.cli.output import print_table

MEGABYTE = 1_000_000


def write_text(path: Path, size: int, separator: str) -> None:
    """Writes random words of 2 to 9 letters, with `separator` after every 80th."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgk", np.uint8)
    words = [bytes(rng.choice(letters, rng.integers(2, 10))).decode() for _ in range(5000)]
    with path.open("w") as file:
        while file.tell() < size:
            file.write(" ".join(rng.choice(words, 80)) + separator)


_PREPARE = """
import sys, time
from pathlib import Path
from mobile_ft.bundle.description import read_bundle, read_tokenizer
from mobile_ft.data.prepare import prepare
tokenizer = read_tokenizer(read_bundle(Path(sys.argv[1])))
start = time.process_time()
prepare(sys.argv[2], "train", tokenizer, 256, 0, Path(sys.argv[2]).with_suffix(".tokens"))
print(time.process_time() - start)
"""


def write_rows(source: Path, folder: Path) -> dict[str, Path]:
    """Writes the questions and answers of `source` in three forms."""
    rows = [json.loads(line) for line in source.read_text().splitlines()]

    def chat(some: list[dict[str, str]]) -> list[dict[str, str]]:
        pairs = [(("user", row["question"]), ("assistant", row["answer"])) for row in some]
        return [{"role": role, "content": content} for pair in pairs for role, content in pair]

    forms = {
        "question and answer": rows,
        "chats of four questions": [{"messages": chat(rows[i : i + 4])} for i in range(0, len(rows), 4)],
        "text": [{"text": row["question"] + row["answer"]} for row in rows],
    }
    files = {}
    for number, (name, of_form) in enumerate(forms.items()):
        files[name] = folder / f"{number}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in of_form))
    return files


def prepare_rows(bundle: Path, source: Path) -> None:
    table = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for name, file in write_rows(source, Path(folder)).items():
            command = [sys.executable, "-c", _PREPARE, str(bundle), str(file)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            seconds = float(child.stdout.read())
            usage = os.wait4(child.pid, 0)[2]
            table[name] = f"{seconds:.1f} s of CPU, peak RSS {usage.ru_maxrss * 1024 / MEGABYTE:.0f} MB"
    print_table(f"tokens of {source}", table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--megabytes", type=int, default=40)
    parser.add_argument("--rows", type=Path, help="JSON lines with questions and answers, instead of long texts")
    args = parser.parse_args()
    if args.rows is not None:
        prepare_rows(args.bundle, args.rows)
        return
    rows = {}
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for name, separator in (("paragraphs", "\n\n"), ("one line", " ")):
            text, out = Path(folder) / f"{name}.txt", Path(folder) / name
            write_text(text, args.megabytes * MEGABYTE, separator)
            command = [sys.executable, "-m", "mobile_ft.cli.main", "train", str(args.bundle), "--data", str(text)]
            start = time.monotonic()
            child = subprocess.Popen([*command, "--steps", "1", "--out", str(out)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            if status != 0:
                sys.exit(f"{name}: mobile-ft train failed")
            rows[name] = f"peak RSS {usage.ru_maxrss * 1024 / MEGABYTE:.0f} MB, {time.monotonic() - start:.0f} s"
    print_table(f"training on {args.megabytes} MB of text", rows)


if __name__ == "__main__":
    main()
