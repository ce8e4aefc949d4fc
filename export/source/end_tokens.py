"""Collects the tokens that end an answer from all files of a checkpoint, for a bundle's generation_config.json."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mobile_ft.data.tokenizer import GENERATION_FILE, Tokenizer, end_ids_of, read_generation_config
from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object
from mobile_ft.files.json_values import Values

_SPECIAL_TOKENS = "special_tokens_map.json"


def write_generation_config(folder: Path, values: Values, ends: list[int]) -> None:
    """Writes the values that are not None, and the distinct `ends` as `eos_token_id`. Writes no file if there are
    none."""
    values = {key: value for key, value in values.items() if value is not None and key != "eos_token_id"}
    ends = list(dict.fromkeys(ends))
    if ends:
        values["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    if values:
        (folder / GENERATION_FILE).write_text(json.dumps(values, indent=2), encoding="utf-8")


def special_token(source: Path, name: str) -> str | None:
    """Returns the text of a token such as `eos_token` in special_tokens_map.json, or None."""
    file = source / _SPECIAL_TOKENS
    token = read_json_object(file, "use that of a Hugging Face tokenizer").get(name) if file.is_file() else None
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def copy_generation_config(source: Path, folder: Path, vocab_size: int) -> None:
    """Writes generation_config.json to the tokenizer's folder, with the values of the one in `source` and all end
    tokens.

    End tokens are those of the tokenizer, of generation_config.json, and of config.json including its text_config.
    Transformers ignores those of config.json if generation_config.json has some. Then they are used only if they are
    special tokens, because they may be defaults of the model's class. Raises UserError, with the file and the value, if
    one is not a token.
    """
    generation, config = source / GENERATION_FILE, source / "config.json"
    values = read_generation_config(generation)
    found = read_json_object(config, "use a Hugging Face config.json") if config.is_file() else {}
    text = found.get("text_config")
    text = text if isinstance(text, dict) else {}
    named = end_ids_of(values, generation, vocab_size)
    configured = end_ids_of(found, config, vocab_size) + end_ids_of(text, f"{config}: text_config", vocab_size)
    own: list[int] = []
    with suppress(UserError):  # if the tokenizer cannot be used, the code that reads text reports why
        tokenizer = Tokenizer(folder)
        own = [tokenizer.eos_id, *_ids(tokenizer, special_token(source, "eos_token"))]
        configured = [end for end in configured if not named or tokenizer.is_special(end)]
    write_generation_config(folder, values or _of_config(text | found), [*own, *named, *configured])


def add_turn_end(folder: Path, tokenizer: Tokenizer) -> None:
    """Adds the special token that the chat template of `folder` writes behind an answer, such as <|im_end|>, to the end
    tokens there and to those of `tokenizer`, which is the folder's. Often no other file of a checkpoint names it."""
    end = _turn_end(tokenizer)
    if end is None or end in tokenizer.end_ids:
        return
    tokenizer.end_ids.append(end)
    write_generation_config(folder, read_generation_config(folder / GENERATION_FILE), tokenizer.end_ids)


def _turn_end(tokenizer: Tokenizer) -> int | None:
    chat = [{"role": "user", "content": "Question"}, {"role": "assistant", "content": "Answer"}]
    try:
        text = tokenizer.render_chat(chat)
    except UserError:  # there is no template, or it takes other chats
        return None
    behind = tokenizer.encode(text.rpartition("Answer")[2].lstrip())
    return behind[0] if behind and tokenizer.is_special(behind[0]) else None


def _ids(tokenizer: Tokenizer, token: str | None) -> list[int]:
    number = None if token is None else tokenizer.token_id(token)
    return [] if number is None else [number]


def _of_config(values: Values) -> dict[str, Any]:
    """Returns the values that Transformers reads from config.json if there is no generation_config.json."""
    return {key: values[key] for key in ("bos_token_id", "pad_token_id") if type(values.get(key)) is int}
