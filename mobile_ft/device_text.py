"""text.json: what a device needs to know of a model's texts beside tokenizer.json (docs/bundle_format.md)."""

import json
from pathlib import Path
from typing import Any

from mobile_ft.chat_table import compile_chat
from mobile_ft.chat_template import Message
from mobile_ft.errors import UserError
from mobile_ft.tokenizer import Tokenizer

TEXT_FILE = "text.json"


def write_device_text(folder: Path, tokenizer: Tokenizer | None = None) -> None:
    """Beside the tokenizer in `folder`, which may be loaded already. Raises UserError where it cannot be used."""
    tokenizer = tokenizer or Tokenizer(folder)
    text = {"bos": next(iter(tokenizer.encode("", add_special=True)), None), "ends": tokenizer.end_ids}
    (folder / TEXT_FILE).write_text(json.dumps(text | {"chat": _chat(tokenizer)}, indent=1) + "\n")


def _chat(tokenizer: Tokenizer) -> dict[str, Any] | str | None:
    """The template's table, why it can have none, or None where there is no template."""
    if tokenizer.chat_template is None:
        return None

    def render(messages: list[Message], add_generation_prompt: bool) -> str:
        try:
            return tokenizer.render_chat(messages, add_generation_prompt)
        except UserError as error:
            raise ValueError(str(error)) from error

    try:
        return compile_chat(render, tokenizer.chat_template).to_json()
    except ValueError as error:
        return f"the model's chat template cannot be used on the device: {error}"
