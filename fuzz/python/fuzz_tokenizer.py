"""A tokenizer, through what training and generation do: tokenizer.json, NUL, tokenizer_config.json, NUL, a text."""

import json
from pathlib import Path

from mobile_ft.data.tokenizer import TextStream, Tokenizer
from tests.small_tokenizer import small_tokenizer

_CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ messages[0].content }}"}


def seeds() -> list[bytes]:
    config = json.dumps(_CONFIG).encode()
    return [b"\0".join([small_tokenizer(kind), config, b"a b ab"]) for kind in ("BPE", "Unigram", "WordPiece")]


def run(data: bytes, folder: Path) -> None:
    tokenizer_json, config, text = (data.split(b"\0", 2) + [b"", b""])[:3]
    (folder / "tokenizer.json").write_bytes(tokenizer_json)
    (folder / "tokenizer_config.json").write_bytes(config)
    tokenizer = Tokenizer(folder)
    words = text.decode(errors="replace")
    ids = tokenizer.encode(words, add_special=True)
    list(tokenizer.encode_long([words]))
    tokenizer.decode(ids)
    stream = TextStream(tokenizer)
    for token in ids:
        stream.add(token)
    stream.finish()
    if tokenizer.has_chat_template:
        tokenizer.render_chat([{"role": "user", "content": words}], add_generation_prompt=True)
