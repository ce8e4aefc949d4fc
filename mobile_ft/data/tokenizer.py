"""A bundle's tokenizer: text to token ids and back, and the model's chat template."""

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models

from mobile_ft.data.long_text import encode_long
from mobile_ft.errors import UserError
from mobile_ft.files.git_lfs import check_no_pointer
from mobile_ft.files.json_text import MOST_BYTES, parse_json, read_json_object
from mobile_ft.runtime import ChatTemplate, RuntimeFailure

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
GENERATION_FILE = "generation_config.json"  # optional
_WANTED = "a bundle has tokenizer.json and tokenizer_config.json"
_MOST_ID = (1 << 31) - 1  # limit of token files
_MOST_GROWTH = 1000  # limit of the growth of a text by replacements
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


Message = Mapping[str, Any]  # "role", "content", and other keys that the template reads, such as "tool_calls"


def end_ids_of(values: dict[str, Any], where: object, vocab_size: int = _MOST_ID + 1) -> list[int]:
    """Returns `eos_token_id` of a generation_config.json or config.json: the tokens that end an answer; [] if missing.

    Raises UserError, with `where`, if one is not a token of a vocabulary of that size.
    """
    ends = values.get("eos_token_id")
    ids = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if any(type(i) is not int or not 0 <= i < vocab_size for i in ids):
        raise UserError(f"{where}: eos_token_id is {ends!r}; it must be one or several token ids below {vocab_size}")
    return ids


def read_generation_config(file: Path) -> dict[str, Any]:
    """Reads a generation_config.json. Returns {} if the file does not exist."""
    return read_json_object(file, "use the model's generation configuration") if file.is_file() else {}


class Tokenizer:
    """The tokenizer of a bundle, from `tokenizer.json` and `tokenizer_config.json`.

    `eos_id` is the token that ends a text or a turn, and `end_ids` are all such tokens, including those of
    `generation_config.json`. `bos_id` is None if the model has no BOS token.
    Raises UserError if a file is missing or damaged, or has no usable `eos_token`.
    """

    def __init__(self, folder: Path) -> None:
        tokenizer_file, config_file = (folder / name for name in TOKENIZER_FILES)
        self._tokenizer = _load_tokenizer(tokenizer_file)
        config = read_json_object(config_file, _WANTED)
        self._named_tokens: dict[str, str] = {}
        for name in _NAMED_TOKENS:
            token = config.get(name)
            # Configurations written by older versions of Transformers have {"content": "</s>", ...} instead of "</s>".
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                self._named_tokens[name] = text
            elif token is not None:
                raise UserError(f"{config_file}: {name} is {token!r}; it must be a token's text")
        eos_id, self.bos_id = self._named_id("eos_token"), self._named_id("bos_token")
        if eos_id is None:
            raise UserError(f"{config_file}: eos_token must be a token of the vocabulary that ends a text")
        self.eos_id: int = eos_id
        generation = folder / GENERATION_FILE
        self.end_ids = list(dict.fromkeys([eos_id, *end_ids_of(read_generation_config(generation), generation)]))

        add_bos = config.get("add_bos_token")
        if add_bos is None:  # then only the post-processor defines it
            with refusals(f"{tokenizer_file}: the post-processor cannot be used"):
                add_bos = self.bos_id is not None and self.bos_id in self._tokenizer.encode("").ids
        if add_bos and self.bos_id is None:
            raise UserError(f"{config_file}: add_bos_token is true, so bos_token must be a token of the vocabulary")
        self._add_bos = bool(add_bos)
        # `encode` adds BOS itself. Byte-level post-processors would also remove spaces from the offsets.
        self._tokenizer.post_processor = None
        self.chat_template: str | None = config.get("chat_template")
        self.template = _compile_template(self.chat_template, self._named_tokens, config_file)

    def token_id(self, token: str) -> int | None:
        """Returns the id of the token with this text, or None."""
        with refusals("the model's tokenizer cannot look up a token"):
            number: int | None = self._tokenizer.token_to_id(token)
        return number

    def is_special(self, token_id: int) -> bool:
        """Whether a token is a special token, which has no text."""
        added = self._tokenizer.get_added_tokens_decoder().get(token_id)
        return added is not None and added.special

    @property
    def has_chat_template(self) -> bool:
        return self.template is not None

    @property
    def pad_token(self) -> str | None:
        return self._named_tokens.get("pad_token")

    def added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        """Returns the tokens that are matched as a whole in a text, by id."""
        added: dict[int, tokenizers.AddedToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    @property
    def shows_date(self) -> bool:
        """Whether the chat template uses the date."""
        return self.template is not None and self.template.shows_date

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Tokenizes `text`. `add_special` adds BOS if the model requires it.

        All methods that encode raise UserError if the tokenizer cannot process the text.
        """
        ids: list[int] = self._encode(text).ids
        return self._prefix(add_special) + ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Tokenizes `text` without BOS. Returns the ids, and the characters [start, end) that each token covers."""
        encoding = self._encode(text)
        return encoding.ids, encoding.offsets

    def encode_long(self, pieces: Iterable[str]) -> Iterator[NDArray[np.int32]]:
        """Tokenizes the text in `pieces` without BOS, and yields the ids in parts. The text may have any length."""
        # Unigram compares all splits of a word at once, and WordPiece treats a long word as unknown.
        return encode_long(self._encode, pieces, local=isinstance(self._tokenizer.model, models.BPE))

    def decode(self, ids: list[int]) -> str:
        """Returns the text of `ids`, including special tokens."""
        return self._decode(ids, skip_special_tokens=False)

    def decode_shown(self, ids: list[int]) -> str:
        """Returns the text of `ids` without special tokens."""
        return self._decode(ids, skip_special_tokens=True)

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = False,
        tools: Sequence[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | str | None = None,
    ) -> str:
        """Renders a chat with the model's chat template, including BOS if the template writes it.

        Raises UserError if the model has no chat template, or the template rejects the messages or ignores a part of
        them.
        """
        if self.template is None:
            raise UserError("the model has no chat template; use rows with prompt and completion, or text")
        kwargs = chat_template_kwargs or {}
        chat: dict[str, Any] = {"messages": list(messages), "tools": None if tools is None else list(tools)}
        chat["chat_template_kwargs"] = kwargs if isinstance(kwargs, str) else dict(kwargs)
        try:
            text = json.dumps(chat)
            return self.template.prompt(text) if add_generation_prompt else self.template.answers(text)[0]
        except (RuntimeFailure, TypeError, ValueError) as error:
            raise UserError(str(error)) from error

    def _encode(self, text: str) -> tokenizers.Encoding:
        refused = "the model's tokenizer cannot process this text"
        if not text.isascii() and _SURROGATE.search(text):
            raise UserError(f"{refused}: it has an unpaired surrogate")
        with refusals(refused):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        _check_id(max(encoding.ids, default=0))
        return encoding

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        with refusals("the model's tokenizer cannot decode tokens"):
            text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def _prefix(self, add_special: bool) -> list[int]:
        return [self.bos_id] if add_special and self._add_bos and self.bos_id is not None else []

    def _named_id(self, name: str) -> int | None:
        token = self._named_tokens.get(name)
        with refusals(f"the model's tokenizer cannot process {name}"):
            number = None if token is None else self._tokenizer.token_to_id(token)
        _check_id(number or 0)
        return number


class TextStream:
    """Decodes generated tokens piece by piece. A piece never ends within a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        # Some decoded tokens are kept before the pending ones, because a token's text, such as its leading space, can
        # depend on the previous token.
        self._shown: list[int] = []
        self._pending: list[int] = []

    def add(self, token: int) -> str:
        """Adds a token. Returns the text that is now complete, which may be empty."""
        self._pending.append(token)
        text = self._pending_text()
        if not text or text.endswith("\ufffd"):  # a character whose last bytes are missing
            return ""
        self._shown, self._pending = self._pending, []
        return text

    def finish(self) -> str:
        """Returns the remaining text. Bytes that are not a complete character become the replacement character."""
        return self._pending_text()

    def _pending_text(self) -> str:
        before = self._tokenizer.decode_shown(self._shown)
        text = self._tokenizer.decode_shown(self._shown + self._pending)
        if text.startswith(before):
            return text[len(before) :]
        # A run of byte tokens that is not UTF-8 is replaced as a whole, including the bytes that were shown.
        return self._tokenizer.decode_shown(self._pending)


def _load_tokenizer(file: Path) -> tokenizers.Tokenizer:
    if not file.is_file():
        raise UserError(f"{file}: no such file; {_WANTED}")
    check_no_pointer(file)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise UserError(f"{file}: {size} bytes, but at most {MOST_BYTES} are supported; {_WANTED}")
    with refusals(f"{file}: not a Hugging Face tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_buffer(file.read_bytes())  # from_file rejects paths that are not UTF-8
        tokenizer.no_truncation()
        tokenizer.no_padding()
        parts = [part.__getstate__() for part in (tokenizer.normalizer, tokenizer.decoder) if part is not None]
        growth = max((_growth(parse_json(part.decode())) for part in parts), default=1)
    if growth > _MOST_GROWTH:
        raise UserError(
            f"{file}: its replacements turn one character into {growth}; at most {_MOST_GROWTH} are supported"
        )
    return tokenizer


def _growth(part: dict[str, Any]) -> int:
    """Returns the largest number of characters that the replacements of a normalizer or decoder make of one."""
    if part["type"] == "Sequence":
        return math.prod(_growth(step) for step in part.get("normalizers", part.get("decoders", [])))
    if part["type"] == "Precompiled":  # SentencePiece's format: the index's size, the index, and texts that end with 0
        charsmap = base64.b64decode(part["precompiled_charsmap"])
        return max(map(len, charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0"))) or 1
    if part["type"] != "Replace":
        return 1
    pattern, content = (
        part["pattern"].get("String", ""),
        part["content"],
    )  # a regular expression may match the empty text
    return -(-len(content) // len(pattern)) or 1 if pattern else 1 + len(content)


def _compile_template(source: Any, tokens: dict[str, str], file: Path) -> ChatTemplate | None:
    if source is None:
        return None
    if not isinstance(source, str):
        raise UserError(f"{file}: chat_template is a {type(source).__name__}; it must be a string")
    try:
        source.encode()
        return ChatTemplate(source, tokens)
    except (RuntimeFailure, UnicodeEncodeError) as error:
        raise UserError(f"{file}: chat_template is not a Jinja template: {error}") from error


def _check_id(number: int) -> None:
    if number > _MOST_ID:
        raise UserError(f"the model's tokenizer has a token with id {number}; it must be at most {_MOST_ID}")


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turns any exception of the tokenizers library in the block into UserError. The library has no exception class,
    and its panics are not subclasses of Exception."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: {error}") from error
