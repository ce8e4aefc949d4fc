"""train.jsonl, through what comes before training: rows become tokens."""

import json
from pathlib import Path

from fuzz.python.fuzz_text import tokenizer
from mobile_ft.data.prepare import Loss, prepare

_CHAT = [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "ab"}]
_ROWS = [
    {"text": "a b", "weight": 0.5},
    {"prompt": "a", "completion": "b"},
    {"question": "a", "answer": "b"},
    {"messages": _CHAT},
    {"prompt": "a", "chosen": "b", "rejected": "a"},
    {"chosen": _CHAT, "rejected": [_CHAT[0], {"role": "assistant", "content": "b"}]},
]


def seeds() -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in _ROWS]


def run(data: bytes, folder: Path) -> None:
    (folder / "train.jsonl").write_bytes(data)
    loss: Loss = "dpo" if b"chosen" in data else "sft"
    prepare(folder, "train", tokenizer(folder), 16, 0, folder / "tokens.safetensors", loss)
