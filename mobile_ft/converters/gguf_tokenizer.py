"""Writes a GGUF file's tokenizer metadata from a Hugging Face tokenizer: byte-level BPE or SentencePiece's BPE."""

import json
import warnings
from pathlib import Path
from typing import Any

import tokenizers
from gguf import GGUFWriter, TokenType

from mobile_ft.bundle.description import Bundle, read_tokenizer
from mobile_ft.converters.gguf_names import utf8
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.files.json_text import read_json_object

# Steps of a pre-tokenizer -> llama.cpp's name for the same pre-tokenizer.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_GPT2, _DIGITS = "ByteLevel", "Digits"
_PRE: dict[tuple[str, ...], str] = {
    (_GPT2,): "gpt-2",
    (_DIGITS, _GPT2): "smollm",
    (_LLAMA3,): "llama-bpe",
    (_QWEN2,): "qwen2",
}
_NAMED = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unk", "pad_token": "pad"}
_UNMERGED = -1e6  # score of a token that no merge produces


def add_tokenizer(writer: GGUFWriter, bundle: Bundle) -> None:
    """Adds the bundle's tokenizer. Raises UserError if the bundle has none, or llama.cpp does not support it."""
    reader = read_tokenizer(bundle)
    file, config_file = bundle.folder / "tokenizer.json", bundle.folder / "tokenizer_config.json"
    tokenizer = tokenizers.Tokenizer.from_buffer(file.read_bytes())
    parts = json.loads(tokenizer.to_str())  # the library adds the fields that the file leaves out
    kind = parts["model"]["type"]
    if kind != "BPE":
        raise UserError(f"{file}: is a {kind} tokenizer; GGUF output supports byte-level BPE and SentencePiece's BPE")
    tokens = _tokens(file, tokenizer, bundle.model.vocab_size)
    if parts["model"]["byte_fallback"]:
        _add_sentencepiece(writer, tokenizer, parts, tokens)
    else:
        _add_byte_level(writer, file, parts)
    writer.add_token_list(tokens)
    writer.add_token_types(_types(tokenizer, parts, tokens))
    config, vocabulary = read_json_object(config_file, "use that of a Hugging Face tokenizer"), set(tokens)
    for key, name in _NAMED.items():
        token = config.get(key)
        text = token.get("content") if isinstance(token, dict) else token
        if text in vocabulary:
            getattr(writer, f"add_{name}_token_id")(tokens.index(text))
    _add_ends(writer, reader.end_ids, tokens)
    writer.add_add_bos_token(reader.bos_id is not None and reader.encode("", add_special=True) == [reader.bos_id])
    if reader.has_chat_template:
        writer.add_chat_template(utf8(config["chat_template"]))


def _add_ends(writer: GGUFWriter, ends: list[int], tokens: list[str]) -> None:
    """Adds the end tokens. Besides EOS, llama.cpp has an end of turn and an end of message, and stops at any of
    them."""
    others = [end for end in ends[1:] if end < len(tokens)]
    message = next((end for end in others if "eom" in tokens[end]), others[1] if len(others) > 1 else None)
    turns = [end for end in others if end != message]
    if turns:
        writer.add_eot_token_id(turns[0])
    if message is not None:
        writer.add_eom_token_id(message)
    if len(turns) > 1:
        lost = ", ".join(repr(tokens[end]) for end in turns[1:])
        warnings.warn(MobileFtWarning(f"GGUF supports at most three end tokens; left out: {lost}"), stacklevel=2)


def _tokens(file: Path, tokenizer: tokenizers.Tokenizer, vocab_size: int) -> list[str]:
    """Returns the text of every id. llama.cpp requires one per row of the embedding."""
    named = {index: token for token, index in tokenizer.get_vocab(with_added_tokens=True).items()}
    if len(named) != tokenizer.get_vocab_size() or max(named) >= vocab_size:
        raise UserError(f"{file}: its {len(named)} tokens must have distinct ids below {vocab_size}")
    return [named.get(index, f"[PAD{index}]") for index in range(vocab_size)]


def _types(tokenizer: tokenizers.Tokenizer, parts: dict[str, Any], tokens: list[str]) -> list[int]:
    known, added = tokenizer.get_vocab(with_added_tokens=True), tokenizer.get_added_tokens_decoder()
    unknown, fallback = parts["model"]["unk_token"], parts["model"]["byte_fallback"]
    types = []
    for index, token in enumerate(tokens):
        if token not in known:
            kind = TokenType.UNUSED
        elif token == unknown:
            kind = TokenType.UNKNOWN
        elif index in added:
            kind = TokenType.CONTROL if added[index].special else TokenType.USER_DEFINED
        elif fallback and len(token) == 6 and token.startswith("<0x"):
            kind = TokenType.BYTE
        else:
            kind = TokenType.NORMAL
        types.append(int(kind))
    return types


def _add_byte_level(writer: GGUFWriter, file: Path, parts: dict[str, Any]) -> None:
    steps = _steps(parts["pre_tokenizer"])
    if steps not in _PRE:
        known = ", ".join(_PRE.values())
        raise UserError(f"{file}: its pre-tokenizer is not supported in GGUF output; supported: {known}")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_PRE[steps])
    writer.add_token_merges([" ".join(pair) for pair in parts["model"]["merges"]])


def _steps(part: dict[str, Any] | None) -> tuple[str, ...]:
    """Returns a pre-tokenizer's steps: regular expressions of splits, and names of other steps except the byte
    mapping."""
    if part is None:
        return ()
    if part["type"] == "Sequence":
        return tuple(step for inner in part["pretokenizers"] for step in _steps(inner))
    if part["type"] == "ByteLevel" and not part["add_prefix_space"]:
        return (_GPT2,) if part["use_regex"] else ()
    if part["type"] == "Digits" and part["individual_digits"]:
        return (_DIGITS,)
    if part["type"] == "Split" and part["behavior"] == "Isolated" and not part["invert"]:
        return (part["pattern"].get("Regex", ""),)
    return (json.dumps(part),)


def _add_sentencepiece(
    writer: GGUFWriter, tokenizer: tokenizers.Tokenizer, parts: dict[str, Any], tokens: list[str]
) -> None:
    """Adds scores in the order of the merges, because llama.cpp first merges the pair whose token has the highest
    score."""
    scores: dict[str, float] = {}
    for rank, (left, right) in enumerate(parts["model"]["merges"]):
        scores.setdefault(left + right, -float(rank))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_scores([scores.get(token, _UNMERGED) for token in tokens])
    text = tokenizer.normalizer.normalize_str("x") if tokenizer.normalizer else "x"
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str(text) if tokenizer.pre_tokenizer else [(text, None)]
    writer.add_add_space_prefix(pieces[0][0].startswith("▁"))
