"""train.json, one JSON array of rows, through what comes before training."""

import json
from pathlib import Path

from fuzz.python import fuzz_rows
from fuzz.python.fuzz_text import tokenizer
from mobile_ft.data.prepare import Loss, prepare


def seeds() -> list[bytes]:
    rows = [json.loads(seed) for seed in fuzz_rows.seeds()]
    texts = [row for row in rows if "chosen" not in row]
    pairs = [row for row in rows if "chosen" in row]
    return [*(json.dumps(each, indent=1).encode() for each in (texts, pairs)), b"[]"]


def run(data: bytes, folder: Path) -> None:
    (folder / "train.json").write_bytes(data)
    loss: Loss = "dpo" if b"chosen" in data else "sft"
    prepare(folder / "train.json", "train", tokenizer(folder), 16, 0, folder / "tokens.safetensors", loss)
