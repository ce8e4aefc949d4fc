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
GENERATION_FILE = "generation_config.json"  # is read besides where it is there
_WANTED = "a bundle holds tokenizer.json and tokenizer_config.json"
_MOST_ID = (1 << 31) - 1  # what a token file holds
_MOST_GROWTH = 1000  # of a text, by replacements
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


Message = Mapping[str, Any]  # "role", "content", and what else a template reads, such as "tool_calls"


def end_ids_of(values: dict[str, Any], where: object, vocab_size: int = _MOST_ID + 1) -> list[int]:
    """`eos_token_id` of a generation_config.json or config.json: the tokens that end an answer; empty if there is none.

    Raises UserError, which says `where`, if one is no token of a vocabulary of that size.
    """
    ends = values.get("eos_token_id")
    ids = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if any(type(i) is not int or not 0 <= i < vocab_size for i in ids):
        raise UserError(f"{where}: eos_token_id is {ends!r}; it must be a token's id, or several, below {vocab_size}")
    return ids


def read_generation_config(file: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    return read_json_object(file, "give the model's generation configuration") if file.is_file() else {}


class Tokenizer:
    """`tokenizer.json` and `tokenizer_config.json` of a bundle.

    `eos_id` is the id that ends a text or a turn, `end_ids` are all that do, those of `generation_config.json` among
    them; `bos_id` is None where the model has none.
    Raises UserError where a file is missing, damaged or names no usable `eos_token`.
    """

    def __init__(self, folder: Path) -> None:
        tokenizer_file, config_file = (folder / name for name in TOKENIZER_FILES)
        self._tokenizer = _load_tokenizer(tokenizer_file)
        config = read_json_object(config_file, _WANTED)
        self._named_tokens: dict[str, str] = {}
        for name in _NAMED_TOKENS:
            token = config.get(name)
            # Configurations written by older transformers hold {"content": "</s>", ...} instead of "</s>".
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                self._named_tokens[name] = text
            elif token is not None:
                raise UserError(f"{config_file}: {name} is {token!r}; it should be a token's text")
        eos_id, self.bos_id = self._named_id("eos_token"), self._named_id("bos_token")
        if eos_id is None:
            raise UserError(f"{config_file}: eos_token should name the vocabulary's token that ends a text")
        self.eos_id: int = eos_id
        generation = folder / GENERATION_FILE
        self.end_ids = list(dict.fromkeys([eos_id, *end_ids_of(read_generation_config(generation), generation)]))

        add_bos = config.get("add_bos_token")
        if add_bos is None:  # then the post-processor is the only one to know
            with refusals(f"{tokenizer_file}: its post-processor cannot be used"):
                add_bos = self.bos_id is not None and self.bos_id in self._tokenizer.encode("").ids
        if add_bos and self.bos_id is None:
            raise UserError(f"{config_file}: add_bos_token is true, so bos_token should name a token")
        self._add_bos = bool(add_bos)
        # `encode` adds BOS itself. Byte-level post-processors would also trim spaces off the offsets.
        self._tokenizer.post_processor = None
        self.chat_template: str | None = config.get("chat_template")
        self.template = _compile_template(self.chat_template, self._named_tokens, config_file)

    def token_id(self, token: str) -> int | None:
        """Of a token by its text; None where there is no such token."""
        with refusals("the model's tokenizer cannot look up a token"):
            number: int | None = self._tokenizer.token_to_id(token)
        return number

    def is_special(self, token_id: int) -> bool:
        """Whether a token is none of a text's."""
        added = self._tokenizer.get_added_tokens_decoder().get(token_id)
        return added is not None and added.special

    @property
    def has_chat_template(self) -> bool:
        return self.template is not None

    @property
    def pad_token(self) -> str | None:
        return self._named_tokens.get("pad_token")

    def added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        """Those that are found whole in a text, by their ids."""
        added: dict[int, tokenizers.AddedToken] = self._tokenizer.get_added_tokens_decoder()
        return added

    @property
    def shows_date(self) -> bool:
        """Whether the chat template asks for the date."""
        return self.template is not None and self.template.shows_date

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
        return self._decode(ids, skip_special_tokens=False)

    def decode_shown(self, ids: list[int]) -> str:
        """The text of `ids` as a reader sees it: without special tokens."""
        return self._decode(ids, skip_special_tokens=True)

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = False,
        tools: Sequence[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | str | None = None,
    ) -> str:
        """The chat as the text the model was trained on, BOS included where the template writes it.

        Raises UserError where the model has no chat template, or the template refuses the messages or does not use
        what they say.
        """
        if self.template is None:
            raise UserError("the model has no chat template; use prompt/completion or text rows")
        kwargs = chat_template_kwargs or {}
        chat: dict[str, Any] = {"messages": list(messages), "tools": None if tools is None else list(tools)}
        chat["chat_template_kwargs"] = kwargs if isinstance(kwargs, str) else dict(kwargs)
        try:
            text = json.dumps(chat)
            return self.template.prompt(text) if add_generation_prompt else self.template.answers(text)[0]
        except (RuntimeFailure, TypeError, ValueError) as error:
            raise UserError(str(error)) from error

    def _encode(self, text: str) -> tokenizers.Encoding:
        refused = "the model's tokenizer cannot take this text"
        if not text.isascii() and _SURROGATE.search(text):
            raise UserError(f"{refused}: it holds half a surrogate pair")
        with refusals(refused):
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        _check_id(max(encoding.ids, default=0))
        return encoding

    def _decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        with refusals("the model's tokenizer cannot spell out its tokens"):
            text: str = self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def _prefix(self, add_special: bool) -> list[int]:
        return [self.bos_id] if add_special and self._add_bos and self.bos_id is not None else []

    def _named_id(self, name: str) -> int | None:
        token = self._named_tokens.get(name)
        with refusals(f"the model's tokenizer cannot take {name}"):
            number = None if token is None else self._tokenizer.token_to_id(token)
        _check_id(number or 0)
        return number


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
        raise UserError(f"{file}: no such file; {_WANTED}")
    check_no_pointer(file)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise UserError(f"{file}: {size} bytes, more than {MOST_BYTES}; {_WANTED}")
    with refusals(f"{file}: not a Hugging Face tokenizer"):
        tokenizer = tokenizers.Tokenizer.from_buffer(file.read_bytes())  # from_file takes no path that is not UTF-8
        tokenizer.no_truncation()
        tokenizer.no_padding()
        parts = [part.__getstate__() for part in (tokenizer.normalizer, tokenizer.decoder) if part is not None]
        growth = max((_growth(parse_json(part.decode())) for part in parts), default=1)
    if growth > _MOST_GROWTH:
        raise UserError(f"{file}: makes a character {growth} characters; it should be {_MOST_GROWTH} at most")
    return tokenizer


def _growth(part: dict[str, Any]) -> int:
    """How many characters of each one the replacements of a normalizer or a decoder make, one after another."""
    if part["type"] == "Sequence":
        return math.prod(_growth(step) for step in part.get("normalizers", part.get("decoders", [])))
    if part["type"] == "Precompiled":  # SentencePiece's: an index of so many bytes, and texts that end in 0
        charsmap = base64.b64decode(part["precompiled_charsmap"])
        return max(map(len, charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0"))) or 1
    if part["type"] != "Replace":
        return 1
    pattern, content = part["pattern"].get("String", ""), part["content"]  # a regular expression may match nothing
    return -(-len(content) // len(pattern)) or 1 if pattern else 1 + len(content)


def _compile_template(source: Any, tokens: dict[str, str], file: Path) -> ChatTemplate | None:
    if source is None:
        return None
    if not isinstance(source, str):
        raise UserError(f"{file}: chat_template is a {type(source).__name__}; a string is wanted")
    try:
        source.encode()
        return ChatTemplate(source, tokens)
    except (RuntimeFailure, UnicodeEncodeError) as error:
        raise UserError(f"{file}: chat_template is not a Jinja template: {error}") from error


def _check_id(number: int) -> None:
    if number > _MOST_ID:
        raise UserError(f"the model's tokenizer gives a token the number {number}; it should be at most {_MOST_ID}")


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """What the tokenizers library raises in the block becomes a UserError: it has no error of its own, and its panics
    are no Exception."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{what}: {error}") from error
