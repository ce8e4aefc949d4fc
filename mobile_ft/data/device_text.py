"""text.json: what a device needs to know of a model's texts beside its tokenizer (docs/reference/bundle_format.md)."""

import json
from pathlib import Path

from mobile_ft.data.tokenizer import Tokenizer

TEXT_FILE = "text.json"


def write_device_text(folder: Path, tokenizer: Tokenizer | None = None) -> None:
    """Beside the tokenizer in `folder`, which may be loaded already. Raises UserError where it cannot be used."""
    tokenizer = tokenizer or Tokenizer(folder)
    text = {"bos": next(iter(tokenizer.encode("", add_special=True)), None), "ends": tokenizer.end_ids}
    (folder / TEXT_FILE).write_text(json.dumps(text, indent=1) + "\n")
