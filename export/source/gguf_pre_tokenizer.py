"""Pre-tokenizers of byte-level BPE, by llama.cpp's names (tokenizer.ggml.pre)."""

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """A pre-tokenizer and related settings."""

    regex: str | None = None  # matches words; None: that of GPT-2
    digits: bool = False  # first split so that each digit is a word
    nfc: bool = False  # normalize the text to composed characters
    ignore_merges: bool = False  # a word in the vocabulary becomes one token, without merges
    add_bos: bool = False  # default if the file does not define it

    def build(self) -> pre_tokenizers.PreTokenizer:
        bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.regex is None)
        if self.digits:
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of_words])
        if self.regex is None:
            return bytes_of_words
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(self.regex), behavior="isolated"), bytes_of_words])


_LLAMA3_WORDS = PreTokenizer(_LLAMA3, ignore_merges=True, add_bos=True)
PRE_TOKENIZERS = {
    "default": PreTokenizer(),
    "gpt-2": PreTokenizer(),
    "smollm": PreTokenizer(digits=True),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "lfm2", "falcon3", "pixtral"), _LLAMA3_WORDS),
    "smaug-bpe": PreTokenizer(_LLAMA3),  # also SmolLM3
    "qwen2": PreTokenizer(_QWEN2, nfc=True),  # also Qwen3
    "deepseek-r1-qwen": PreTokenizer(_QWEN2),
    "tekken": PreTokenizer(_TEKKEN, ignore_merges=True, add_bos=True),
}
