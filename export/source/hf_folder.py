"""Reads a Hugging Face folder: config.json, one or several safetensors files, and the tokenizer."""

import json
import shutil
from pathlib import Path
from typing import Any

from mobile_ft.errors import UserError
from mobile_ft.export.source.end_tokens import copy_generation_config, special_token
from mobile_ft.export.source.hf_checkpoint import HfCheckpoint
from mobile_ft.export.source.safetensors_files import model_tensors
from mobile_ft.files.git_lfs import check_no_pointer, is_pointer
from mobile_ft.files.json_text import read_json_object


class HfFolder(HfCheckpoint):
    """A folder written by `save_pretrained`, or in the same form by mlx-lm, AutoGPTQ or AutoAWQ.

    Raises UserError, with the file's name, if it cannot be used.
    """

    def __init__(self, folder: Path, linear_format: str, embedding_format: str):
        super().__init__(folder / "config.json", model_tensors(folder), linear_format, embedding_format)
        self._folder = folder
        self.tokenizer_place = f"{folder}/"

    def write_tokenizer(self, folder: Path) -> None:
        copy_tokenizer(self._folder, folder, self.config.vocab_size)


def copy_tokenizer(source: Path, folder: Path, vocab_size: int) -> None:
    """Copies tokenizer.json, and tokenizer_config.json with the chat template, which may be in a separate file. Writes
    generation_config.json with all tokens that end an answer.

    Raises UserError, with the file's name, if one is missing or malformed.
    """
    tokenizer = source / "tokenizer.json"
    if not tokenizer.is_file():
        old = source / "tokenizer.model"
        fetch = (
            f" (tokenizer.model is a git-lfs pointer; first run `git lfs pull` in {source})" if is_pointer(old) else ""
        )
        raise UserError(f"{tokenizer}: no such file; save the model's fast tokenizer there{fetch}")
    check_no_pointer(tokenizer)
    config = read_json_object(source / "tokenizer_config.json", "use that of a Hugging Face tokenizer")
    template = _chat_template(source, config.get("chat_template"))
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    config = {key: value for key, value in config.items() if key != "chat_template"}
    if template is not None:
        config["chat_template"] = template
    if config.get("eos_token") is None and (eos := special_token(source, "eos_token")) is not None:
        config["eos_token"] = eos
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    copy_generation_config(source, folder, vocab_size)


def _chat_template(folder: Path, configured: Any) -> str | None:
    """Returns the default chat template from chat_template.jinja, from the configuration, which may have several by
    name, or from chat_template.json, an older file of models with vision that Transformers' tokenizers ignore."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: not UTF-8 ({error}); save the file as UTF-8") from None
    where, older = folder / "tokenizer_config.json", folder / "chat_template.json"
    if configured is None and older.is_file():
        where = older
        configured = read_json_object(older, 'use {"chat_template": "..."}').get("chat_template")
    if isinstance(configured, list):
        named = {entry.get("name"): entry.get("template") for entry in configured if isinstance(entry, dict)}
        configured = named.get("default")
    if configured is not None and not isinstance(configured, str):
        raise UserError(f"{where}: chat_template must be a string, or a list that has one named default")
    return configured
