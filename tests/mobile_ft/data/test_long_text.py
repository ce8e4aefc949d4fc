"""A text read through windows has the tokens of the whole text, whatever it looks like."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mobile_ft.data.long_text import encode_long

WINDOW = 400  # characters

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PLAIN_WORDS = """
the The thing things isn't I'll don'T naïve Straße end. end, Why? U.S.A. http://a.b/c?d=e&f=%20 1 12 123 1234 3.14159
2024-01-02 x_y foo(bar) == != -> // /* */ { } " ' — “quoted” … ▁ a▁b <|im_end|> <|im_start|>user <s> </s> <unk>
и также привет 日本語の文章 東京都 한국어 สวัสดี ชั่วโมง नमस्ते क्षत्रिय مرحبا 🙂 👍🏽 🇫🇷🇩🇪 ﬁ ㍿
"""
ODD_WORDS = ["👨\u200d👩\u200d👧", "e\u0301", "n\u0303\u0302", "A\u030a", "\u0301", "\x00", "\x85", "\u200b", "\ufeff"]
WORDS = [*PLAIN_WORDS.split(), *ODD_WORDS]
SPACES = [" "] * 30 + [
    "  ",
    "   ",
    "\n",
    "\n",
    "\n\n",
    "\r\n",
    "\r\n\r\n",
    "\t",
    " \t",
    "\n\n\n ",
    " \n",
    "\u3000",
    "\xa0",
    "",
]
ALPHABETS = ["a", "acgt", "0123456789", "日本", " ", " \n", " \t\r\n"]


def random_text(rng: random.Random, length: int) -> str:
    """Words and spaces of all kinds; now and then many of one kind, or something as long as a window."""
    parts: list[str] = []
    size = 0
    while size < length:
        kind = rng.random()
        if kind < 0.98:
            part = rng.choice(WORDS) + rng.choice(SPACES)
        elif kind < 0.99:
            part = rng.choice([*SPACES, *WORDS]) * rng.randrange(2, 60)
        else:
            letters = rng.choice(ALPHABETS)
            longest = WINDOW * rng.choice([1, 1, 1, 6])
            part = "".join(rng.choices(letters, k=rng.randrange(longest)))
        parts.append(part)
        size += len(part)
    return "".join(parts)


def byte_level(*splits: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def llama2() -> Tokenizer:
    """No words at all: the whole text is one, with a space put before it."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return tokenizer


def metaspace(model: Any, scheme: str) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return tokenizer


def t5() -> Tokenizer:
    tokenizer = metaspace(models.Unigram(), "always")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(r"\s+"), " ")]
    )
    return tokenizer


def bert() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MAKERS: dict[str, tuple[Callable[[], Tokenizer], Callable[..., Any], dict[str, Any]]] = {
    "gpt2": (byte_level, trainers.BpeTrainer, {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}),
    "llama3": (
        lambda: byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated")),
        trainers.BpeTrainer,
        {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()},
    ),
    "llama2": (llama2, trainers.BpeTrainer, {"special_tokens": [*SPECIAL, *BYTES], "max_token_length": 12}),
    "metaspace": (
        lambda: metaspace(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True), "first"),
        trainers.BpeTrainer,
        {"special_tokens": [*SPECIAL, *BYTES]},
    ),
    "unigram": (lambda: metaspace(models.Unigram(), "always"), trainers.UnigramTrainer, {"unk_token": "<unk>"}),
    "t5": (t5, trainers.UnigramTrainer, {"unk_token": "<unk>"}),
    "bert": (bert, trainers.WordPieceTrainer, {}),
}


@cache
def trained(name: str) -> Tokenizer:
    make, trainer, options = MAKERS[name]
    tokenizer = make()
    corpus = random_text(random.Random(0), 30_000).splitlines(keepends=True)
    tokenizer.train_from_iterator(
        corpus, trainer(vocab_size=1500, show_progress=False, **{"special_tokens": SPECIAL} | options)
    )
    # As models have them: tokens that take the space before them along, or are found in any text.
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", lstrip=True, normalized=False)])
    return tokenizer


def windowed(tokenizer: Tokenizer, text: str, rng: random.Random) -> list[int]:
    def pieces() -> Iterator[str]:
        start = 0
        while start < len(text):
            size = rng.choice([1, 7, WINDOW, 3 * WINDOW])
            yield text[start : start + size]
            start += size

    def encode(part: str) -> Any:
        return tokenizer.encode(part, add_special_tokens=False)

    local = isinstance(tokenizer.model, models.BPE)
    return [int(token) for part in encode_long(encode, pieces(), WINDOW, local) for token in part]


@pytest.mark.parametrize("name", [*MAKERS, "smollm2"])
def test_same_tokens_as_the_whole_text(name: str, request: pytest.FixtureRequest) -> None:
    if name == "smollm2":
        tokenizer = Tokenizer.from_file(str(request.getfixturevalue("smollm2_bundle") / "tokenizer.json"))
    else:
        tokenizer = trained(name)
    for seed in range(20):
        rng = random.Random(seed)
        text = random_text(rng, 20_000)
        assert windowed(tokenizer, text, rng) == tokenizer.encode(text, add_special_tokens=False).ids, seed


LONG_RUNS = [
    "end.\n\n{spaces}\nThe",  # Llama 3's expression takes line ends and what is between them as one
    "end.{spaces}<|im_end|>The",  # which takes the space before it along
    "end. {letters} The",
    "end. {spaces}{letters}{spaces}",
    "{digits}{letters}",
    "{digits}.\n{digits}",
]


@pytest.mark.parametrize("name", MAKERS)
def test_runs_longer_than_windows(name: str) -> None:
    tokenizer = trained(name)
    before_and_after = " ".join(PLAIN_WORDS.split())
    for index, length in enumerate((WINDOW // 2, WINDOW, 3 * WINDOW, 10 * WINDOW)):
        for form in LONG_RUNS:
            rng = random.Random(index)
            letters, digits = ("".join(rng.choices(choice, k=length)) for choice in ("acgt", "0123456789"))
            run = form.format(spaces=" " * length, letters=letters, digits=digits)
            for shift in range(0, 2 * WINDOW, WINDOW // 3):
                text = before_and_after * 3 + "x " * (shift // 2) + run + before_and_after
                whole = tokenizer.encode(text, add_special_tokens=False).ids
                assert windowed(tokenizer, text, rng) == whole, (form, length, shift)


PEAK = """
import sys
from pathlib import Path
from mobile_ft.data.prepare import prepare
from mobile_ft.data.tokenizer import Tokenizer

def peak_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024

bundle, data, out = map(Path, sys.argv[1:])
tokenizer = Tokenizer(bundle)
tokenizer.encode("warm")
before = peak_mb()
stats = prepare(data, "train", tokenizer, 256, 0, out)
print(stats.tokens, peak_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("separator", ["\n\n", " ", ""])
def test_memory_of_a_long_text(separator: str, tiny_bundle: Callable[..., Path], tmp_path: Path) -> None:
    """2 MB at a token each, as paragraphs, one line and one word."""
    sentence = ("Ten little words are" if separator else "Tenlittlewordsare") + separator
    data = tmp_path / "long.txt"
    data.write_text(sentence * (2_000_000 // len(sentence)))
    command: list[str | Path] = [sys.executable, "-c", PEAK, tiny_bundle(), data, tmp_path / "tokens"]
    tokens, growth = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(tokens) > 1_900_000
    assert float(growth) < 150  # whole, the text takes more than twice that
