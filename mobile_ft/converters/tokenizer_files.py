"""Writes the bundle's tokenizer and the end tokens into an output folder."""

import json
import shutil
from pathlib import Path
from typing import Any

from mobile_ft.bundle.description import Bundle, read_tokenizer
from mobile_ft.data.tokenizer import GENERATION_FILE, TOKENIZER_FILES, Tokenizer, read_generation_config

FILES = (*TOKENIZER_FILES, GENERATION_FILE)


def write_tokenizer_files(bundle: Bundle, out: Path) -> Tokenizer | None:
    """Writes FILES into the folder `out`. Returns None if the bundle has no tokenizer, such as after
    `export --random-init`."""
    if not set(TOKENIZER_FILES) <= bundle.files.keys():
        return None
    tokenizer = read_tokenizer(bundle)
    for name in TOKENIZER_FILES:
        shutil.copyfile(bundle.folder / name, out / name)
    special = special_ids(tokenizer)
    generation = special | read_generation_config(bundle.folder / GENERATION_FILE)
    generation["eos_token_id"] = special["eos_token_id"]
    (out / GENERATION_FILE).write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns bos_token_id and eos_token_id (one id or several) in Transformers' form."""
    ends = tokenizer.end_ids
    bos = {} if tokenizer.bos_id is None else {"bos_token_id": tokenizer.bos_id}
    return bos | {"eos_token_id": ends if len(ends) > 1 else ends[0]}
