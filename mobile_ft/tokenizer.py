"""A bundle's tokenizer: text to token ids and back, and the model's chat template."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import tokenizers
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray
from tokenizers import models

from mobile_ft.errors import UserError
from mobile_ft.long_text import encode_long

Message = dict[str, str]

_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """`tokenizer.json` and `tokenizer_config.json` of a bundle.

    `eos_id` is the id that ends a text or a turn; `bos_id` is None where the model has none.
    Raises UserError where a file is missing, damaged or names no usable `eos_token`.
    """

    def __init__(self, folder: Path) -> None:
        config_file = folder / "tokenizer_config.json"
        self._tokenizer = _load_tokenizer(folder / "tokenizer.json")
        config = _load_config(config_file)
        # Configurations written by older transformers hold {"content": "</s>", ...} instead of "</s>".
        self._named_tokens = {
            name: token["content"] if isinstance(token, dict) else token
            for name in _NAMED_TOKENS
            if (token := config.get(name)) is not None
        }
        eos_id, self.bos_id = self._named_id("eos_token"), self._named_id("bos_token")
        if eos_id is None:
            raise UserError(f"{config_file}: eos_token should name the vocabulary's token that ends a text")
        self.eos_id: int = eos_id

        add_bos = config.get("add_bos_token")
        if add_bos is None:  # then the post-processor is the only one to know
            add_bos = self.bos_id is not None and self.bos_id in self._tokenizer.encode("").ids
        if add_bos and self.bos_id is None:
            raise UserError(f"{config_file}: add_bos_token is true, so bos_token should name a token")
        self._add_bos = bool(add_bos)
        # `encode` adds BOS itself. Byte-level post-processors would also trim spaces off the offsets.
        self._tokenizer.post_processor = None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._template = _compile_template(config.get("chat_template"), config_file)

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Token ids of `text`; `add_special` puts BOS first where the model wants one.

        All that encode raise UserError where the tokenizer cannot take the text.
        """
        ids: list[int] = self._encode(text).ids
        return self._prefix(add_special) + ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids of `text`, without BOS, and the [start, end) characters each one covers."""
        encoding = self._encode(text)
        return encoding.ids, encoding.offsets

    def encode_long(self, pieces: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        """Token ids, without BOS, of the text that `pieces` make up, in parts: for a text of any length."""
        # Unigram weighs all splits of a word at once, and WordPiece knows no word that is too long.
        return encode_long(self._encode, pieces, local=isinstance(self._tokenizer.model, models.BPE))

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`, special tokens spelled out."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def decode_shown(self, ids: list[int]) -> str:
        """The text of `ids` as a reader sees it: without special tokens."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def render_chat(self, messages: list[Message], add_generation_prompt: bool = False) -> str:
        """The chat as the text the model was trained on, BOS included where the template writes it.

        Raises UserError where the model has no chat template or the template refuses the messages.
        """
        if self._template is None:
            raise UserError("the model has no chat template; use prompt/completion or text rows")
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=None,  # templates ask `is none`, which an undefined variable is not
                documents=None,
                **self._named_tokens,
            )
        except TemplateError as error:
            raise UserError(f"the model's chat template refuses these messages: {error}") from error

    def _encode(self, text: str) -> tokenizers.Encoding:
        try:
            return self._tokenizer.encode(text, add_special_tokens=False)
        except BaseException as error:
            # The library raises nothing more specific, and its panics are no Exception.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            halves = any("\ud800" <= character <= "\udfff" for character in text)
            reason = "it holds half a surrogate pair" if halves else " ".join(str(error).split())
            raise UserError(f"the model's tokenizer cannot take this text: {reason}") from error

    def _prefix(self, add_special: bool) -> list[int]:
        return [self.bos_id] if add_special and self._add_bos and self.bos_id is not None else []

    def _named_id(self, name: str) -> int | None:
        token = self._named_tokens.get(name)
        return None if token is None else self._tokenizer.token_to_id(token)


class TextStream:
    """Turns generated tokens into text piece by piece, never showing half a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Tokens already shown stay in front of the pending ones: a token's text (its leading space, say)
        # can depend on the one before.
        self._shown: list[int] = []
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        """The text that is complete now that `token` has come; often one word, sometimes empty."""
        self._pending.append(token)
        text = self._pending_text()
        if not text or text.endswith("\ufffd"):  # a character whose last bytes are still to come
            return ""
        self._shown, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """What is left; the replacement character stands for bytes that never became a character."""
        return self._pending_text()

    def _pending_text(self) -> str:
        before = self._tokenizer.decode_shown(self._shown)
        return self._tokenizer.decode_shown(self._shown + self._pending)[len(before) :]


def _load_tokenizer(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise UserError(f"{file}: not found; a bundle holds one")
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more specific
        raise UserError(f"{file}: not a Hugging Face tokenizer: {error}") from error


def _load_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"{file}: not found; a bundle holds one")
    try:
        config = json.loads(file.read_bytes())
    except ValueError as error:
        raise UserError(f"{file}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{file}: a JSON object is wanted, this is a {type(config).__name__}")
    return config


class _Generation(Extension):
    """Templates may mark the assistant's text with {% generation %}; here the mark means nothing."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _compile_template(source: Any, file: Path) -> Template | None:
    """A template in the environment of Hugging Face's apply_chat_template; sandboxed, as it is foreign."""
    if source is None:
        return None
    if not isinstance(source, str):
        raise UserError(f"{file}: chat_template is a {type(source).__name__}; a string is wanted")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda style: datetime.now().strftime(style)
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise UserError(f"{file}: chat_template is not a Jinja template: {error}") from error


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML characters, which no model was trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
