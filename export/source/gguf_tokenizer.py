"""Writes a Hugging Face tokenizer from the metadata of a GGUF file."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from mobile_ft.data.tokenizer import refusals
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.export.source.end_tokens import write_generation_config
from mobile_ft.export.source.gguf_pre_tokenizer import PRE_TOKENIZERS

_NORMAL, _CONTROL, _USER_DEFINED, _BYTE = 1, 3, 4, 6  # values of tokenizer.ggml.token_type

_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>")
_ASSUMED = "default"  # pre-tokenizer of a file that does not name one

_MOST_SPLIT = 1 << 28  # sum of squared token lengths: this many characters are copied to try all splits


def write_tokenizer(fields: dict[str, Any], out_dir: Path) -> None:
    """Writes `tokenizer.json`, `tokenizer_config.json` and `generation_config.json` to `out_dir`.

    `fields` is the GGUF's metadata as plain Python values. Raises UserError if the tokenizer is not supported or
    incomplete.
    """
    with refusals("GGUF metadata tokenizer.ggml is not a valid tokenizer"):
        _write_tokenizer(fields, out_dir)


def _write_tokenizer(fields: dict[str, Any], out_dir: Path) -> None:
    model = fields.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer, add_bos = _byte_level(fields)
    elif model == "llama":
        tokenizer, add_bos = _sentencepiece(fields), True
    elif model == "t5":
        tokenizer, add_bos = _unigram(fields), False
    else:
        raise UserError(f"GGUF metadata tokenizer.ggml.model is {model!r}; supported: gpt2, llama, t5")
    add_bos = bool(fields.get("tokenizer.ggml.add_bos_token", add_bos))

    _required(fields, "eos_token_id")
    ends = [_token_id(fields, "eos_token_id"), _turn_end(fields), _token_id(fields, "eom_token_id")]
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    named = {name: token for name, key in names.items() if (token := _named_token(fields, f"{key}_token_id"))}
    _add_special_tokens(tokenizer, fields, list(named.values()))
    if add_bos:
        if "bos_token" not in named:
            raise UserError("GGUF metadata requires a BOS token but has no tokenizer.ggml.bos_token_id")
        bos = named["bos_token"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )

    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "add_bos_token": add_bos,
        "clean_up_tokenization_spaces": False,
    }
    if "tokenizer.chat_template" in fields:
        template = fields["tokenizer.chat_template"]
        if not isinstance(template, str):
            raise UserError(
                f"GGUF metadata tokenizer.chat_template is a {type(template).__name__}; it must be a string"
            )
        config["chat_template"] = template
    # The library's own `save` raises a plain Exception if it fails.
    (out_dir / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (out_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    generation = {
        "bos_token_id": _token_id(fields, "bos_token_id"),
        "pad_token_id": _token_id(fields, "padding_token_id"),
    }
    write_generation_config(out_dir, generation, [end for end in ends if end is not None])


def _byte_level(fields: dict[str, Any]) -> tuple[Tokenizer, bool]:
    """Returns a byte-level BPE, and the default of add_bos for such models."""
    name = fields.get("tokenizer.ggml.pre")
    if name is None:
        name = _ASSUMED
        warnings.warn(
            f"GGUF metadata has no tokenizer.ggml.pre (the pre-tokenizer); using {name!r}, that of GPT-2. "
            "If the model was trained with another pre-tokenizer, its tokens are wrong",
            MobileFtWarning,
            stacklevel=2,
        )
    pre = PRE_TOKENIZERS.get(name) if isinstance(name, str) else None
    if pre is None:
        raise UserError(f"GGUF metadata tokenizer.ggml.pre is {name!r}; supported: {', '.join(PRE_TOKENIZERS)}")
    tokenizer = _bpe(fields, _merges(fields), ignore_merges=pre.ignore_merges)
    if pre.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, pre.add_bos


def _sentencepiece(fields: dict[str, Any]) -> Tokenizer:
    """Returns SentencePiece's BPE. Bytes that are in no other token become tokens like <0x0A>."""
    if "tokenizer.ggml.merges" in fields:
        merges = _merges(fields)
    else:
        merges = _merges_from_scores(_texts(fields, "tokens"), _per_token(fields, "scores"))
    unknown = _named_token(fields, "unknown_token_id")
    tokenizer = _bpe(fields, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    _mark_spaces(tokenizer, "first" if _adds_space(fields) else "never", _adds_space(fields))
    return tokenizer


def _unigram(fields: dict[str, Any]) -> Tokenizer:
    """Returns SentencePiece's unigram model (arXiv 1804.10959), which uses the split with the highest sum of scores."""
    tokens, scores, kinds = (_texts(fields, "tokens"), _per_token(fields, "scores"), _per_token(fields, "token_type"))
    if not all(map(math.isfinite, scores)):
        raise UserError("GGUF metadata tokenizer.ggml.scores has values that are not finite")
    # The cost of an unknown character depends on the lowest score, so the padding token must not have the lowest one.
    least = min((score for score, kind in zip(scores, kinds, strict=True) if kind == _NORMAL), default=0.0)
    vocabulary = [(token, max(score, least)) for token, score in zip(tokens, scores, strict=True)]
    with refusals("GGUF metadata tokenizer.ggml is not a valid unigram model"):
        unknown = _token_id(fields, "unknown_token_id")
        tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=unknown, byte_fallback=_BYTE in kinds))
        steps: list[normalizers.Normalizer] = []
        if "tokenizer.ggml.precompiled_charsmap" in fields:
            steps.append(normalizers.Precompiled(_bytes(fields, "precompiled_charsmap")))
        if fields.get("tokenizer.ggml.remove_extra_whitespaces", False):
            steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
        if _adds_space(fields):  # for each text between special tokens, as in llama.cpp
            steps.append(normalizers.Prepend(" "))
        tokenizer.normalizer = normalizers.Sequence(steps)
    _mark_spaces(tokenizer, "never", _adds_space(fields))
    return tokenizer


def _adds_space(fields: dict[str, Any]) -> bool:
    return bool(fields.get("tokenizer.ggml.add_space_prefix", True))


def _mark_spaces(tokenizer: Tokenizer, prepend_scheme: str, strip: bool) -> None:
    """Represents spaces by the character U+2581 in tokens. `strip` removes the first one from a decoded text."""
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=prepend_scheme, split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip:
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(steps)


def _bpe(fields: dict[str, Any], merges: list[Any], **options: Any) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(_texts(fields, "tokens"))}
    with refusals("GGUF metadata tokenizer.ggml.merges does not fit its tokens"):
        return Tokenizer(models.BPE(vocabulary, merges, **options))


def _merges_from_scores(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """Returns all pairs of tokens that form a token, best score first, with ties in Transformers' order."""
    if sum(len(token) ** 2 for token in tokens) > _MOST_SPLIT:
        raise UserError("GGUF metadata tokenizer.ggml.tokens has tokens that are too long to compute their merges")
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges: list[tuple[float, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(left, right) for left, right in pairs if left in vocabulary and right in vocabulary]
        known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges += [(score, left, right) for left, right in known]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    return [(left, right) for _, left, right in merges]


def _add_special_tokens(tokenizer: Tokenizer, fields: dict[str, Any], named: list[str]) -> None:
    """Adds control, named and user-defined tokens, which are matched as a whole. Only the first two are special."""
    kinds = dict(zip(_texts(fields, "tokens"), _per_token(fields, "token_type"), strict=True))
    special = [token for token, kind in kinds.items() if kind == _CONTROL or token in named]
    user_defined = [token for token, kind in kinds.items() if kind == _USER_DEFINED and token not in named]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in user_defined])


def _named_token(fields: dict[str, Any], key: str) -> str | None:
    index = _token_id(fields, key)
    return None if index is None else _texts(fields, "tokens")[index]


def _turn_end(fields: dict[str, Any]) -> int | None:
    """Returns the token that ends a turn. Many files do not define it; then it is recognized by its text, as in
    llama.cpp."""
    if "tokenizer.ggml.eot_token_id" in fields:
        return _token_id(fields, "eot_token_id")
    tokens, kinds = _texts(fields, "tokens"), _per_token(fields, "token_type")
    known = (tokens.index(text) for text in _TURN_ENDS if text in tokens)
    return next((index for index in known if kinds[index] == _CONTROL), None)


def _token_id(fields: dict[str, Any], key: str) -> int | None:
    index, tokens = fields.get(f"tokenizer.ggml.{key}"), len(_texts(fields, "tokens"))
    if index is not None and (not isinstance(index, int) or not 0 <= index < tokens):
        raise UserError(
            f"GGUF metadata tokenizer.ggml.{key} is {index!r}; it must be an integer from 0 to {tokens - 1}"
        )
    return index


def _bytes(fields: dict[str, Any], key: str) -> bytes:
    values = _required(fields, key)
    if not isinstance(values, list) or any(not isinstance(value, int) or not -128 <= value < 256 for value in values):
        raise UserError(f"GGUF metadata tokenizer.ggml.{key} must be a list of bytes")
    return bytes(value & 255 for value in values)  # some files store them as int8


def _merges(fields: dict[str, Any]) -> list[Any]:
    return [tuple(merge.split(" ")) for merge in _texts(fields, "merges")]


def _per_token(fields: dict[str, Any], key: str) -> list[Any]:
    """Returns a list of one number per token."""
    values, tokens = _required(fields, key), len(_texts(fields, "tokens"))
    if not isinstance(values, list) or any(not isinstance(value, int | float) for value in values):
        raise UserError(f"GGUF metadata tokenizer.ggml.{key} must be a list of numbers")
    if len(values) != tokens:
        raise UserError(f"GGUF metadata tokenizer.ggml.{key} has {len(values)} values for {tokens} tokens")
    return values


def _texts(fields: dict[str, Any], key: str) -> list[str]:
    values = _required(fields, key)
    if not isinstance(values, list) or any(not isinstance(value, str) for value in values):
        raise UserError(f"GGUF metadata tokenizer.ggml.{key} must be a list of strings")
    return values


def _required(fields: dict[str, Any], key: str) -> Any:
    if f"tokenizer.ggml.{key}" not in fields:
        raise UserError(f"GGUF metadata has no tokenizer.ggml.{key}, which this kind of tokenizer requires")
    return fields[f"tokenizer.ggml.{key}"]
