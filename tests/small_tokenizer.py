"""Tokenizers of a handful of tokens, as tokenizer.json."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

_TOKENS = ("a", "b", "Ġ", "ab", "<unk>")


def small_tokenizer(kind: str = "BPE") -> bytes:
    """`kind` is BPE, Unigram or WordPiece."""
    vocabulary = {token: index for index, token in enumerate(_TOKENS)}
    if kind == "BPE":
        tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    elif kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram([(token, -1.0) for token in _TOKENS], unk_id=4))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    else:
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in ("<s>", "</s>")])
    return tokenizer.to_str().encode()


def write_small_tokenizer(folder: Path) -> Path:
    """The files of one, in a folder that is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(small_tokenizer())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder
