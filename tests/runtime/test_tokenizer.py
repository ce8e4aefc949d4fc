"""The runtime's tokenizer against Hugging Face's `tokenizers`, to the token and the byte."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from mobile_ft.runtime import RuntimeFailure
from mobile_ft.runtime._core import Tokenizer
from tests.small_tokenizer import small_tokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
# GPT-4o's and its like: categories by two letters, lookahead, case.
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SENTENCES = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; they'LL see.\n\n  It's a naïve café — 東京タワー!\r\n",
    "def f(x):\n\treturn x ** 2  # ünïcödé\n\n\n",
    "Привет, мир! Ελληνικά 한국어 العربية हिन्दी \u00a0\u3000 ½ ² Ⅷ ٣٤ 🙂👩‍👩‍👧",
    "hello hello hello world worlds worldly low lower lowest new newer newest wide wider widest",
]
EVERY = [*range(0x20, 0xD800), *range(0xE000, 0x110000)]
SNIPPETS = [
    *("'s", "'LL", "\u017f", "\u212a", "<|im_end|>", "<end>", "  <mask> ", "<0x41>", "\u0301", "e\u0301", "\u0323"),
    *("Ⅷing", "Ⓐing", "²ing", "\u200ding", "<mask> \n\n x", "<mask>  <mask>", "\n\n"),
    *("\uac00", "\u1100\u1161\u11a8", "123", "\u0663", "the ", "ing", " \n ", "\u2581", "\t\t", "\u00a0", "'\u017f"),
]


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Of every plane and what tokenizers treat apart."""
    rng = random.Random(seed)
    kinds = [
        lambda: chr(rng.randrange(32, 127)),
        lambda: chr(rng.randrange(0x80, 0x3000)),
        lambda: chr(rng.choice(EVERY)),
        lambda: rng.choice(" \n\t\r\u3000 '"),
        lambda: rng.choice(SNIPPETS),
        lambda: chr(rng.randrange(0x300, 0x370)),
        lambda: chr(rng.randrange(0x900, 0xE00)),
    ]
    yield from SENTENCES
    for _ in range(count):
        chosen = rng.sample(kinds, rng.randrange(1, 4))
        yield "".join(rng.choice(chosen)() for _ in range(rng.randrange(40)))


def specials() -> list[AddedToken]:
    return [
        AddedToken("<|im_end|>", normalized=False, special=True),
        AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False, special=True),
        AddedToken("<end>", normalized=True, special=False),
        AddedToken("ing", single_word=True, normalized=False, special=False),
        AddedToken("\n\n", normalized=False, special=False),
    ]


def byte_level(split: Any = None, normalizer: Any = None, **bpe: Any) -> HfTokenizer:
    """Trained on SENTENCES. `split` in place of GPT-2's regular expression."""
    tokenizer = HfTokenizer(models.BPE(**bpe))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    steps = [pre_tokenizers.ByteLevel(False, use_regex=split is None)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(([split] if split is not None else []) + steps)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    tokenizer.add_tokens(specials())
    return tokenizer


def sentencepiece_bpe(normalizer: Any, pre_tokenizer: Any = None) -> HfTokenizer:
    """Characters and their merges, bytes for what is not known, as Llama 2 and Gemma have them."""
    trained = HfTokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.train_from_iterator(SENTENCES * 3, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *model["vocab"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = HfTokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_tokens(specials())
    return tokenizer


def unigram(byte_fallback: bool, scheme: str) -> HfTokenizer:
    trained = HfTokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        SENTENCES * 3, trainers.UnigramTrainer(vocab_size=200, unk_token="<unk>", show_progress=False)
    )
    vocabulary = [tuple(entry) for entry in json.loads(trained.to_str())["model"]["vocab"]]
    if byte_fallback:
        vocabulary += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    unknown = next(i for i, (token, _) in enumerate(vocabulary) if token == "<unk>")
    tokenizer = HfTokenizer(models.Unigram(vocabulary, unknown, byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.add_tokens(specials())
    return tokenizer


SPACES = normalizers.Replace(" ", "\u2581")
TOKENIZERS = {
    "gpt2": lambda: byte_level(),
    "words": lambda: byte_level(pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+"), "isolated")),
    "smollm2": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True)),
    "llama3": lambda: byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), ignore_merges=True),
    "qwen": lambda: byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated"), normalizers.NFC()),
    "gpt4o": lambda: byte_level(pre_tokenizers.Split(Regex(GPT4O), "removed", invert=True)),
    "contiguous": lambda: byte_level(pre_tokenizers.Digits(individual_digits=False)),
    "merged": lambda: byte_level(pre_tokenizers.Split(Regex(r"\d+?|[^\W[e]]|\S{3,5}o"), "merged_with_next")),
    "llama2": lambda: sentencepiece_bpe(normalizers.Sequence([normalizers.Prepend("\u2581"), SPACES])),
    "gemma": lambda: sentencepiece_bpe(SPACES, pre_tokenizers.Split(" ", "merged_with_previous")),
    "unigram": lambda: unigram(False, "always"),
    "unigram with bytes": lambda: unigram(True, "first"),
}


@pytest.fixture(params=TOKENIZERS)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[HfTokenizer, Tokenizer]:
    hf = TOKENIZERS[request.param]()
    file = tmp_path / "tokenizer.json"
    hf.save(str(file))
    return hf, Tokenizer(str(file))


def spans(text: str, offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets in characters as offsets in bytes."""
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return [(starts[begin], starts[end]) for begin, end in offsets]


def test_the_same_as_hugging_face(both: tuple[HfTokenizer, Tokenizer]) -> None:
    hf, ours = both
    to_nfc = hf.normalizer.normalize_str if isinstance(hf.normalizer, normalizers.NFC) else str
    unigram = isinstance(hf.model, models.Unigram)
    for text in texts(1500):
        expected = hf.encode(text, add_special_tokens=False)
        ids, found = ours.encode(text)
        assert ids == expected.ids, text
        for skip_special in (False, True):
            assert ours.decode(ids, skip_special) == hf.decode(ids, skip_special_tokens=skip_special), text
        # Hugging Face has composed characters stand for their first part only, and Unigram's bytes for all unknown
        # characters around.
        if not unigram and to_nfc(text) == text:
            assert found == spans(text, expected.offsets), text


def test_decoding_any_tokens(both: tuple[HfTokenizer, Tokenizer]) -> None:
    """Characters that are cut, bytes that are none, tokens that are not there."""
    hf, ours = both
    rng = random.Random(1)
    size = hf.get_vocab_size()
    for _ in range(300):
        ids = [rng.randrange(size + 3) for _ in range(rng.randrange(12))]
        assert ours.decode(ids) == hf.decode(ids, skip_special_tokens=False)


def test_older_files(tmp_path: Path) -> None:
    """Merges as "left right", a model without its type."""
    hf = TOKENIZERS["gpt2"]()
    values = json.loads(hf.to_str())
    values["model"]["merges"] = [" ".join(merge) for merge in values["model"]["merges"]]
    del values["model"]["type"]
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(values))
    for text in SENTENCES:
        assert Tokenizer(str(file)).encode(text)[0] == hf.encode(text).ids


def damaged(change: Any, kind: str = "BPE") -> bytes:
    values = json.loads(small_tokenizer(kind))
    change(values)
    return json.dumps(values).encode()


def put(*path: Any) -> Any:
    """Sets what lies at all but the last of `path` to the last."""

    def change(values: Any) -> None:
        for step in path[:-2]:
            values = values[step]
        values[path[-2]] = path[-1]

    return change


METASPACE = {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True}
SPLIT = {"type": "Split", "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no such file|empty|not a tokenizer.json"),
        (b"[]", "not a tokenizer.json"),
        (b'{"model": 3}', "not a tokenizer.json"),
        (b'{"a":' * 80, "nested deeper than 64 levels"),
        (small_tokenizer("WordPiece"), "its model WordPiece is not supported"),
        (damaged(put("normalizer", {"type": "Nmt"})), "its normalizer Nmt is not supported"),
        (
            damaged(put("pre_tokenizer", {"type": "UnicodeScripts"})),
            "its pre-tokenizer UnicodeScripts is not supported",
        ),
        (damaged(put("decoder", {"type": "CTC"})), "its decoder CTC is not supported"),
        (
            damaged(put("model", "continuing_subword_prefix", "##")),
            "its model's continuing_subword_prefix is not supported",
        ),
        (
            damaged(put("model", "merges", [["a", "b"], ["a", "x"]])),
            "its merges produce ax, which is not in the vocabulary",
        ),
        (damaged(put("model", "merges", ["a b c"])), 'its merge "a b c" must have two tokens'),
        (damaged(put("model", "vocab", "a", -1)), "its token a has id -1; it must be from 0 to 16777215"),
        (damaged(put("model", "vocab", "a", 1 << 24)), "its token a has id 16777216"),
        (damaged(put("model", "vocab", "a", 0.5)), "its token a has the id 0.5"),
        (damaged(put("model", "vocab", "a", 1)), "its id 1 belongs to both b and a|its id 1 belongs to both a and b"),
        (damaged(put("added_tokens", 0, "id", -1)), "id is -1; must be an integer from 0"),
        (damaged(put("model", "unk_id", 99), "Unigram"), "its unknown token 99 is not in the vocabulary"),
        (damaged(put("model", "vocab", 1, ["a", -1.0]), "Unigram"), "its token a is duplicated"),
        (
            damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "(?<=a)b"}})),
            "its regular expression has a group that begins with",
        ),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "(ab)+"}})), "has a repeated group, which is not"),
        (
            damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": r"\p{Han}"}})),
            "has the property Han, which is not",
        ),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "[a"}})), "has an early end, which is not"),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": r"\bword"}})), r"has a .{1,4}b, which is not"),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "(" * 60}})), "groups too deep"),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "a?" * 600}})), "too many parts"),
        (damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "a{3}?"}})), "an optional { }"),
        (
            damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "(?i:é)"}})),
            "case-insensitive letters other than ASCII",
        ),
        (
            damaged(put("pre_tokenizer", SPLIT | {"pattern": {"Regex": "a*|b"}})),
            "can match the empty text, which is not supported: a",
        ),
        (
            damaged(put("pre_tokenizer", METASPACE | {"replacement": ""})),
            "its replacement of spaces is ; it must be one",
        ),
        (damaged(put("decoder", METASPACE | {"prepend_scheme": "last"})), "its prepend scheme last is not supported"),
        (damaged(put("added_tokens", 0, "id", 9)), "its added token <s> has id 9; it must be 5"),
        (
            damaged(put("added_tokens", 1, "content", "<s>")),
            "its added token <s> is duplicated",
        ),
        (damaged(put("added_tokens", 0, "content", "a")), "its added token a has id 5; it must be 0"),
    ],
)
def test_refused(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(RuntimeFailure, match=f"{file}: .*({message})"):
        Tokenizer(str(file))


def test_texts_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_bytes(damaged(put("model", "unk_token", "what")))
    with pytest.raises(RuntimeFailure, match="the tokenizer's unknown token what is not in its vocabulary"):
        Tokenizer(str(file)).encode("x")
    doubling = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    file.write_bytes(damaged(put("normalizer", {"type": "Sequence", "normalizers": [doubling] * 40})))
    with pytest.raises(RuntimeFailure, match="the tokenizer expands the text to more than 8388608 bytes"):
        Tokenizer(str(file)).encode("a")
    slow = SPLIT | {"pattern": {"Regex": r"\s*\s*\s*\s*\s*x"}}
    file.write_bytes(damaged(put("pre_tokenizer", slow)))
    with pytest.raises(RuntimeFailure, match="regular expression takes too long for this text"):
        Tokenizer(str(file)).encode(" " * 2000)
    file.write_bytes(damaged(put("model", "unk_id", None), "Unigram"))
    with pytest.raises(RuntimeFailure, match="has no token for a character of this text, and no unknown token"):
        Tokenizer(str(file)).encode("x")
