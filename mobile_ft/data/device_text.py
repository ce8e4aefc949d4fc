"""Writes text.json, which a device needs besides the tokenizer (docs/reference/bundle_format.md)."""

import json
from pathlib import Path

from mobile_ft.data.tokenizer import Tokenizer

TEXT_FILE = "text.json"


def write_device_text(folder: Path, tokenizer: Tokenizer | None = None) -> None:
    """Writes text.json to the tokenizer's folder. `tokenizer` is that tokenizer if it is already loaded.

    Raises UserError if the tokenizer cannot be used.
    """
    tokenizer = tokenizer or Tokenizer(folder)
    text = {"bos": next(iter(tokenizer.encode("", add_special=True)), None), "ends": tokenizer.end_ids}
    (folder / TEXT_FILE).write_text(json.dumps(text, indent=1) + "\n")
