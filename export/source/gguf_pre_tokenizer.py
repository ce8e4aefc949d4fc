"""How byte-level BPE splits a text into words, by the names that llama.cpp gives the ways (tokenizer.ggml.pre)."""

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
    """A way to split, and what goes with it."""

    regex: str | None = None  # of words; None: GPT-2's
    digits: bool = False  # each is a word, before all else
    nfc: bool = False  # the text is normalised to composed characters
    ignore_merges: bool = False  # a word that is in the vocabulary is taken whole
    add_bos: bool = False  # where the file does not say

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
    "smaug-bpe": PreTokenizer(_LLAMA3),  # SmolLM3, too
    "qwen2": PreTokenizer(_QWEN2, nfc=True),  # and Qwen3
    "deepseek-r1-qwen": PreTokenizer(_QWEN2),
    "tekken": PreTokenizer(_TEKKEN, ignore_merges=True, add_bos=True),
}
