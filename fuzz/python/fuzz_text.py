"""A .txt file, through what comes before training."""

import json
from functools import cache
from pathlib import Path

from mobile_ft.data.prepare import prepare
from mobile_ft.data.tokenizer import Tokenizer
from tests.small_tokenizer import small_tokenizer

_TEMPLATE = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ eos_token }}{% endfor %}"


@cache
def tokenizer(folder: Path) -> Tokenizer:
    (folder / "tokenizer.json").write_bytes(small_tokenizer())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": _TEMPLATE}))
    return Tokenizer(folder)


def seeds() -> list[bytes]:
    return ["a b ab\nab é🙂".encode(), b"\xef\xbb\xbfa" * 20]


def run(data: bytes, folder: Path) -> None:
    (folder / "train.txt").write_bytes(data)
    prepare(folder / "train.txt", "train", tokenizer(folder), 16, 0, folder / "tokens.safetensors")
