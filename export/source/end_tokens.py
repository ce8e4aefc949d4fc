"""All tokens that end an answer, of every file of a checkpoint that names some: generation_config.json of a bundle."""

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
    """The values that are not None, with `ends` as `eos_token_id`, each once; nothing where all that is nothing."""
    values = {key: value for key, value in values.items() if value is not None and key != "eos_token_id"}
    ends = list(dict.fromkeys(ends))
    if ends:
        values["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    if values:
        (folder / GENERATION_FILE).write_text(json.dumps(values, indent=2), encoding="utf-8")


def special_token(source: Path, name: str) -> str | None:
    """The text that special_tokens_map.json has for `eos_token`, say; None where it has none."""
    file = source / _SPECIAL_TOKENS
    token = read_json_object(file, "give a Hugging Face tokenizer's").get(name) if file.is_file() else None
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def copy_generation_config(source: Path, folder: Path, vocab_size: int) -> None:
    """Writes generation_config.json beside the tokenizer in `folder`: the values of that in `source`, and all ends.

    Those are the tokenizer's, generation_config.json's, and config.json's, inside text_config too. Transformers ignores
    config.json's if generation_config.json has some; then they count only if they are special tokens, because they may
    be defaults of the model's class. Raises UserError naming the file and the value where one is no token.
    """
    generation, config = source / GENERATION_FILE, source / "config.json"
    values = read_generation_config(generation)
    found = read_json_object(config, "give a Hugging Face config.json") if config.is_file() else {}
    text = found.get("text_config")
    text = text if isinstance(text, dict) else {}
    named = end_ids_of(values, generation, vocab_size)
    configured = end_ids_of(found, config, vocab_size) + end_ids_of(text, f"{config}: text_config", vocab_size)
    own: list[int] = []
    with suppress(UserError):  # of a tokenizer that cannot be used: whatever reads text says why
        tokenizer = Tokenizer(folder)
        own = [tokenizer.eos_id, *_ids(tokenizer, special_token(source, "eos_token"))]
        configured = [end for end in configured if not named or tokenizer.is_special(end)]
    write_generation_config(folder, values or _of_config(text | found), [*own, *named, *configured])


def _ids(tokenizer: Tokenizer, token: str | None) -> list[int]:
    number = None if token is None else tokenizer.token_id(token)
    return [] if number is None else [number]


def _of_config(values: Values) -> dict[str, Any]:
    """What Transformers takes from config.json where there is no generation_config.json."""
    return {key: values[key] for key in ("bos_token_id", "pad_token_id") if type(values.get(key)) is int}
