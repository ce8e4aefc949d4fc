"""SentencePiece's models as GGUF holds them, against the libraries that train them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, normalizers, pre_tokenizers, trainers

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.export.source.gguf_tokenizer import write_tokenizer

# A text that stays as it is: of other texts' models two ways to split a word may be as likely as each other but for
# rounding, and then either is right.
LICENSE = (Path(__file__).parents[3] / "LICENSE").read_text().split("\n")
LINES, UNSEEN = LICENSE[:150], LICENSE[150:]
TEXTS = [
    "The quick brown fox jumps over the lazy dog, isn't it?",
    "  leading   spaces and trailing  ",
    "a\ttab\nand a line",
    "Ünïcödé ﬁne ① ½ Ⅷ, 日本語, 🙂👍🏽 e\u0301 and \u200b zero width",
    "0.5 MB `mobile-ft plan`",
    "",
    " ",
]
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5


def sentencepiece_fields(kind: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A model of sentencepiece, in which rare letters are no tokens, and what llama.cpp's converter makes of it."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model_pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=file,
        model_type=kind,
        vocab_size=400 + 256 * options.get("byte_fallback", False),
        character_coverage=0.98,
        minloglevel=2,
        num_threads=1,  # the same sums every time
        **options,
    )
    proto = model_pb2.ModelProto.FromString(file.getvalue())
    spec = proto.normalizer_spec
    fields = {
        "tokenizer.ggml.model": {"unigram": "t5", "bpe": "llama"}[kind],
        "tokenizer.ggml.tokens": [piece.piece for piece in proto.pieces] + ["[PAD0]"],
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces] + [-1000.0],
        "tokenizer.ggml.token_type": [piece.type for piece in proto.pieces] + [UNUSED],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": spec.add_dummy_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": spec.remove_extra_whitespaces,
    }
    if spec.precompiled_charsmap:
        fields["tokenizer.ggml.precompiled_charsmap"] = list(spec.precompiled_charsmap)
    return sentencepiece.SentencePieceProcessor(model_proto=file.getvalue()), fields


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize(
    ("normalization", "options"),
    [
        ("nmt_nfkc", {}),
        ("identity", {}),
        ("identity", {"remove_extra_whitespaces": False}),
        ("nmt_nfkc", {"add_dummy_prefix": False}),
    ],
)
def test_unigram_gives_sentencepieces_ids(
    tmp_path: Path, byte_fallback: bool, normalization: str, options: dict[str, Any]
) -> None:
    options = options | {"byte_fallback": byte_fallback, "normalization_rule_name": normalization}
    theirs, fields = sentencepiece_fields("unigram", user_defined_symbols=["<tool>"], **options)
    write_tokenizer(fields, tmp_path)
    ours = Tokenizer(tmp_path)
    for text in TEXTS + UNSEEN:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        spelled = theirs.decode(ids).replace(" \u2047 ", "")  # which is how it spells what is unknown
        assert ours.decode_shown(ids) == spelled, text
    # As in llama.cpp, tokens that are found whole split a text in two.
    assert ours.encode("a <tool> b") == [*ours.encode("a "), ours.encode("<tool>")[-1], *ours.encode(" b")]


def test_bpe_gives_sentencepieces_ids(tmp_path: Path) -> None:
    """As Gemma has it: no space before the text, and runs of spaces and of line ends that are tokens."""
    theirs, fields = sentencepiece_fields(
        "bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["\n", "\n\n", "\n\n\n", "\t", "▁▁", "▁▁▁", "▁▁▁▁", "<start_of_turn>"],
    )
    write_tokenizer(fields, tmp_path)
    ours = Tokenizer(tmp_path)
    for text in [*TEXTS, *UNSEEN, "\n".join(UNSEEN), "a  b   c     d\n\n\n\ne", "<start_of_turn>user\nhi"]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert ours.decode(ids) == text


def trained_fields() -> tuple[HfTokenizer, dict[str, Any]]:
    tokenizer = HfTokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Prepend(" ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(LINES, trainer)
    ids = tokenizer.get_vocab()
    vocabulary = sorted(ids, key=ids.__getitem__)
    scores = dict(map(tuple, json.loads(tokenizer.to_str())["model"]["vocab"]))
    return tokenizer, {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": vocabulary,
        "tokenizer.ggml.scores": [scores[token] for token in vocabulary],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [NORMAL] * (len(vocabulary) - 3),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def test_same_ids_as_tokenizers(tmp_path: Path) -> None:
    theirs, fields = trained_fields()
    write_tokenizer(fields, tmp_path)
    ours = Tokenizer(tmp_path)
    for text in TEXTS + UNSEEN:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text
        _, offsets = ours.encode_with_offsets(text)
        assert {place for start, end in offsets for place in range(start, end)} == set(range(len(text)))
    assert ours.encode("a", add_special=True) == ours.encode("a")  # no BOS where the file does not say
    long = "\n".join(LINES)
    assert [i for part in ours.encode_long(iter([long])) for i in part] == ours.encode(long)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": None}, "has no tokenizer.ggml.scores"),
        ({"scores": [float("nan")] * 400}, "tokenizer.ggml.scores has values that are not finite"),
        ({"scores": [0.0]}, "tokenizer.ggml.scores has 1 values for 400 tokens"),
        ({"unknown_token_id": 400}, "tokenizer.ggml.unknown_token_id is 400; it must be an integer from 0 to 399"),
        ({"precompiled_charsmap": "abc"}, "tokenizer.ggml.precompiled_charsmap must be a list of bytes"),
        ({"precompiled_charsmap": [256]}, "tokenizer.ggml.precompiled_charsmap must be a list of bytes"),
        ({"precompiled_charsmap": [255, 255, 255, 127]}, "is not a valid unigram model: .*precompiled_charsmap"),
    ],
)
def test_metadata_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    changed = trained_fields()[1] | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(UserError, match=message):
        write_tokenizer({key: value for key, value in changed.items() if value is not None}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_charsmap_that_leads_out_of_itself(tmp_path: Path) -> None:
    """The library panics where it is used."""
    charsmap = [144, 1, 0, 0] + [255] * 400 + [65, 0]
    write_tokenizer(trained_fields()[1] | {"tokenizer.ggml.precompiled_charsmap": charsmap}, tmp_path)
    with pytest.raises(UserError, match="the model's tokenizer cannot process this text"):
        Tokenizer(tmp_path).encode("a")


def test_a_charsmap_that_makes_texts_grow(tmp_path: Path) -> None:
    charsmap = [8, 0, 0, 0] + [0] * 8 + [65] * 1001 + [0]
    write_tokenizer(trained_fields()[1] | {"tokenizer.ggml.precompiled_charsmap": charsmap}, tmp_path)
    with pytest.raises(UserError, match="its replacements turn one character into 1001; at most 1000 are supported"):
        Tokenizer(tmp_path)
