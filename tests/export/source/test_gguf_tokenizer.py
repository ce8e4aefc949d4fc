import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as HfTokenizer

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import MobileFtWarning, UserError
from mobile_ft.export.source.gguf_tokenizer import write_tokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog, isn't it?",
    "  leading spaces\tand tabs\n\n\nand   lines \r\n end  ",
    "Ünïcödé, 日本語, العربية, 🙂👍🏽 and \u200b zero width",
    "def f(x):\n    return x ** y  # comment\n",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
    "",
]


@pytest.fixture(scope="module")
def from_transformers(smollm2_gguf: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)


def test_smollm2_encodes_as_transformers_does(smollm2_bundle: Path, from_transformers: Any) -> None:
    tokenizer = Tokenizer(smollm2_bundle)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == from_transformers.encode(text, add_special_tokens=False), text
        assert tokenizer.decode(ids) == text


def test_smollm2_splits_digits_where_transformers_does_not(smollm2_bundle: Path, from_transformers: Any) -> None:
    """SmolLM2's own tokenizer.json starts with Digits(individual_digits=True), and llama.cpp splits at \\p{N}
    for `smollm` too. transformers drops that step: the last space before a number then leaves the spaces
    before it, where SmolLM2 keeps them together."""
    tokenizer = HfTokenizer.from_file(str(smollm2_bundle / "tokenizer.json"))
    assert tokenizer.encode("a\n\n12").tokens == ["a", "ĊĊ", "1", "2"]
    assert from_transformers.tokenize("a\n\n12") == ["a", "Ċ", "Ċ", "1", "2"]


def test_smollm2_ids_and_special_tokens(smollm2_bundle: Path, smollm2_fields: dict[str, Any]) -> None:
    tokenizer = HfTokenizer.from_file(str(smollm2_bundle / "tokenizer.json"))
    tokens = smollm2_fields["tokenizer.ggml.tokens"]
    assert tokenizer.get_vocab() == {token: index for index, token in enumerate(tokens)}
    added = tokenizer.get_added_tokens_decoder()
    assert sorted(added) == list(range(17)) and all(token.special for token in added.values())
    assert Tokenizer(smollm2_bundle).eos_id == 2


def test_transformers_reads_what_is_written(smollm2_bundle: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2_bundle)
    ours = Tokenizer(smollm2_bundle)
    for text in [*TEXTS, "a\n\n12"]:
        assert theirs(text)["input_ids"] == ours.encode(text, add_special=True)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    for prompt in (False, True):
        rendered = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        assert rendered == ours.render_chat(messages, add_generation_prompt=prompt)
    assert (theirs.eos_token, theirs.pad_token) == ("<|im_end|>", "<|im_end|>")


def sentencepiece_fields() -> dict[str, Any]:
    """A SentencePiece vocabulary as GGUF holds it: scores, no merges, all 256 bytes."""
    pieces = ["▁t", "▁a", "he", "▁the", "in", "er", "▁in", "▁there", "re", "▁▁"]
    letters = ["▁", "t", "h", "e", "r", "i", "n", "a", "s"]
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *[f"<0x{byte:02X}>" for byte in range(256)],
        *pieces,
        *letters,
        "<tool>",
    ]
    scores = [0.0] * 259 + [float(-rank) for rank in range(len(pieces) + len(letters))] + [0.0]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) + len(letters)) + [4]
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def write_gguf(path: Path, fields: dict[str, Any]) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(fields["tokenizer.ggml.model"])
    writer.add_token_list(fields["tokenizer.ggml.tokens"])
    writer.add_token_scores(fields["tokenizer.ggml.scores"])
    writer.add_token_types(fields["tokenizer.ggml.token_type"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_block_count):
        add(8)
    for add in (writer.add_feed_forward_length, writer.add_head_count, writer.add_head_count_kv):
        add(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_sentencepiece_encodes_as_transformers_does(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    fields = sentencepiece_fields()
    write_gguf(tmp_path / "tiny.gguf", fields)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    write_tokenizer(fields, tmp_path)
    ours = Tokenizer(tmp_path)
    for text in [
        "there in  there is a",
        "the\nünder",
        "",
        "in</s>the",
        "a <tool>there",
        " the",
        "theretherein",
    ]:
        ids = ours.encode(text, add_special=True)
        assert ids == theirs.encode(text), text
        assert ids[0] == 1  # llama.cpp adds BOS to a SentencePiece model that says nothing of it
        if not text.startswith(" "):
            assert ours.decode_shown(ids) == text.replace("</s>", "")
    assert [ours.decode([i]) for i in ours.encode("the")] == ["the"]


def test_sentencepiece_without_space_prefix(tmp_path: Path) -> None:
    fields = sentencepiece_fields() | {
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.ggml.add_bos_token": False,
    }
    write_tokenizer(fields, tmp_path)
    tokenizer = HfTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("the the").tokens == ["t", "he", "▁the"]
    assert tokenizer.decode(tokenizer.encode(" the").ids) == " the"


def byte_level_fields(pre: str) -> dict[str, Any]:
    """Byte-level BPE of the bytes in use, with merges that show where the text is split."""
    letters = [*"aAb1234'sS,.", "Ġ", "Ċ", "Ã", "©", "Ì", "ģ", "e"]
    merges = ["1 2", "12 3", "3 4", "' S", "Ġ Ġ", ". Ċ", "Ã ©"]
    tokens = [*letters, *[merge.replace(" ", "") for merge in merges], "a1b", "aSb", "<|end|>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("gpt-2", "1234", ["123", "4"]),
        ("default", "1234", ["123", "4"]),
        ("smollm", "1234", ["1", "2", "3", "4"]),
        ("qwen2", "1234", ["1", "2", "3", "4"]),
        ("llama-bpe", "1234", ["123", "4"]),
        ("gpt-2", "1.\n", ["1", ".", "Ċ"]),
        ("llama-bpe", "1.\n", ["1", ".Ċ"]),  # a newline joins the punctuation before it
        ("qwen2", "1.\n", ["1", ".Ċ"]),
        ("gpt-2", "a'S", ["a", "'", "S"]),
        ("llama-bpe", "a'S", ["a", "'S"]),
        ("llama-bpe", "aSb", ["aSb"]),  # in the vocabulary, though no merges lead there
        ("qwen2", "aSb", ["a", "S", "b"]),
        ("qwen2", "e\u0301", ["Ã©"]),  # NFC
        ("deepseek-r1-qwen", "e\u0301", ["e", "Ì", "ģ"]),
        ("deepseek-r1-qwen", "1234", ["1", "2", "3", "4"]),
        ("lfm2", "1234", ["123", "4"]),
        ("lfm2", "aSb", ["aSb"]),
        ("smaug-bpe", "1234", ["123", "4"]),
        ("smaug-bpe", "aSb", ["a", "S", "b"]),
        ("tekken", "1234", ["1", "2", "3", "4"]),
        ("tekken", "1.\n", ["1", ".Ċ"]),
        ("tekken", "aSb", ["a", "S", "b"]),  # a capital starts a word, so the one in the vocabulary is none
        ("tekken", "a'S", ["a", "'S"]),
    ],
)
def test_byte_level_splits(pre: str, text: str, tokens: list[str], tmp_path: Path) -> None:
    write_tokenizer(byte_level_fields(pre), tmp_path)
    tokenizer = HfTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode(text, add_special_tokens=False).tokens == tokens


def test_what_is_assumed_of_a_file_that_says_nothing_is_said(tmp_path: Path) -> None:
    fields = byte_level_fields("gpt-2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_tokenizer(fields, tmp_path)
        unsaid = {key: value for key, value in sentencepiece_fields().items() if key != "tokenizer.ggml.pre"}
        write_tokenizer(unsaid, tmp_path)  # which needs none
    del fields["tokenizer.ggml.pre"]
    with pytest.warns(MobileFtWarning, match="no tokenizer.ggml.pre .*; using 'default', that of GPT-2"):
        write_tokenizer(fields, tmp_path)
    tokenizer = HfTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("1234", add_special_tokens=False).tokens == ["123", "4"]


def test_which_start_with_bos_unasked(tmp_path: Path) -> None:
    for pre, add, starts in [
        ("llama-bpe", None, True),
        ("qwen2", None, False),
        ("qwen2", True, True),
        ("llama-bpe", False, False),
        ("lfm2", None, True),
        ("tekken", None, True),
        ("smaug-bpe", None, False),
    ]:
        fields = byte_level_fields(pre) | ({} if add is None else {"tokenizer.ggml.add_bos_token": add})
        write_tokenizer(fields, tmp_path)
        tokenizer = Tokenizer(tmp_path)
        assert (tokenizer.encode("a", add_special=True)[0] == tokenizer.bos_id) is starts


LLAMA3_REGEX = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
TEKKEN_REGEX = (
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)


@pytest.mark.parametrize(
    ("pre", "regex"), [("lfm2", LLAMA3_REGEX), ("smaug-bpe", LLAMA3_REGEX), ("tekken", TEKKEN_REGEX)]
)
def test_same_ids_as_a_tokenizer_that_splits_by_the_models_expression(pre: str, regex: str, tmp_path: Path) -> None:
    theirs = HfTokenizer(models.BPE(ignore_merges=pre != "smaug-bpe"))
    split = pre_tokenizers.Split(Regex(regex), behavior="isolated")
    theirs.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    lines = (Path(__file__).parents[3] / "docs/architecture.md").read_text().splitlines(keepends=True)
    letters = pre_tokenizers.ByteLevel.alphabet()
    options: dict[str, Any] = {"initial_alphabet": letters, "special_tokens": ["<e>"], "show_progress": False}
    theirs.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=1000, **options))
    model = json.loads(theirs.to_str())["model"]
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": sorted(model["vocab"], key=model["vocab"].get),
        "tokenizer.ggml.token_type": [3] + [1] * (len(model["vocab"]) - 1),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    write_tokenizer(fields, tmp_path)
    ours = Tokenizer(tmp_path)
    for text in [*TEXTS, *lines, "camelCase HTTPServer don't DON'T path/to//\n\n 12345 ǅ ᾈ"]:
        assert ours.encode(text) == theirs.encode(text).ids, text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre": "viking"}, "'viking'; supported: default, gpt-2, smollm, llama3"),
        ({"model": "bert"}, "'bert'; supported: gpt2, llama, t5"),
        ({"merges": None}, "has no tokenizer.ggml.merges"),
        ({"merges": ["x y"]}, "tokenizer.ggml.merges does not fit"),
        ({"merges": ["1 2 3"]}, "tokenizer.ggml.merges does not fit"),
        ({"tokens": None}, "has no tokenizer.ggml.tokens"),
        ({"eos_token_id": None}, "has no tokenizer.ggml.eos_token_id"),
        ({"eos_token_id": 999}, "tokenizer.ggml.eos_token_id is 999; it must be an integer from 0 to 28"),
        ({"eos_token_id": 1.0}, "tokenizer.ggml.eos_token_id is 1.0; it must be an integer from 0 to 28"),
        ({"eos_token_id": [1]}, "tokenizer.ggml.eos_token_id is .1.; it must be an integer from 0 to 28"),
        ({"eot_token_id": 29}, "tokenizer.ggml.eot_token_id is 29; it must be an integer from 0 to 28"),
        ({"eom_token_id": -1}, "tokenizer.ggml.eom_token_id is -1; it must be an integer from 0 to 28"),
        ({"tokens": 5}, "tokenizer.ggml.tokens must be a list of strings"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens must be a list of strings"),
        ({"merges": [1]}, "tokenizer.ggml.merges must be a list of strings"),
        ({"token_type": "abc"}, "tokenizer.ggml.token_type must be a list of numbers"),
        ({"token_type": ["1"] * 29}, "tokenizer.ggml.token_type must be a list of numbers"),
        ({"pre": ["gpt-2"]}, "tokenizer.ggml.pre is .'gpt-2'.; supported"),
        ({"model": 1}, "tokenizer.ggml.model is 1; supported"),
        ({"model": "llama", "merges": None, "scores": ["a"] * 29}, "tokenizer.ggml.scores must be a list of numbers"),
        ({"token_type": [1, 1]}, "tokenizer.ggml.token_type has 2 values for 29 tokens"),
        ({"bos_token_id": None, "add_bos_token": True}, "requires a BOS token"),
    ],
)
def test_metadata_that_cannot_be_used(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    changed = byte_level_fields("gpt-2") | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    fields = {key: value for key, value in changed.items() if value is not None}
    with pytest.raises(UserError, match=message.replace("'", ".")):
        write_tokenizer(fields, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "ends"),
    [({}, [28]), ({"eot": 5}, [28, 5]), ({"eom": 4, "eot": 5}, [28, 5, 4]), ({"eot": 28, "eom": 4}, [28, 4])],
)
def test_tokens_that_end_a_turn_or_a_message(given: dict[str, int], ends: list[int], tmp_path: Path) -> None:
    keys = {f"tokenizer.ggml.{key}_token_id": token for key, token in given.items()}
    write_tokenizer(byte_level_fields("gpt-2") | keys, tmp_path)
    assert Tokenizer(tmp_path).end_ids == ends
    generation = json.loads((tmp_path / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 28, "eos_token_id": ends if len(ends) > 1 else ends[0]}


@pytest.mark.parametrize(("kind", "ends"), [(3, [3, 28]), (1, [3])])
def test_an_end_of_turn_that_no_key_names(kind: int, ends: list[int], tmp_path: Path) -> None:
    """As in files of Gemma 3, whose EOS ends a text. The last token is <|end|>."""
    fields = byte_level_fields("gpt-2") | {"tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.bos_token_id": 3}
    kinds = fields["tokenizer.ggml.token_type"][:-1] + [kind]
    write_tokenizer(fields | {"tokenizer.ggml.token_type": kinds}, tmp_path)
    assert Tokenizer(tmp_path).end_ids == ends


def test_a_chat_template_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tokenizer.chat_template is a list; it must be a string"):
        write_tokenizer(byte_level_fields("gpt-2") | {"tokenizer.chat_template": [1]}, tmp_path)


def test_tokens_too_long_for_merges(tmp_path: Path) -> None:
    fields = sentencepiece_fields()
    fields["tokenizer.ggml.tokens"][-1] = "x" * 100_000
    with pytest.raises(UserError, match="tokenizer.ggml.tokens has tokens that are too long to compute their merges"):
        write_tokenizer(fields, tmp_path)
