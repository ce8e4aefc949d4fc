import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, processors

from mobile_ft.data.tokenizer import TextStream, Tokenizer
from mobile_ft.errors import UserError

Bundle = Callable[..., Path]
MESSAGES = [{"role": "user", "content": "Is <a> & 'b' ü?"}, {"role": "assistant", "content": "yes"}]


def test_encode_decode_and_bos(tiny_bundle: Bundle) -> None:
    plain = Tokenizer(tiny_bundle("plain"))
    with_bos = Tokenizer(tiny_bundle("bos", add_bos_token=True))
    text = "no yes é<|im_end|>"
    assert plain.decode(plain.encode(text)) == text
    assert plain.decode_shown(plain.encode(text)) == "no yes é"
    assert plain.encode(text, add_special=True) == plain.encode(text) == with_bos.encode(text)
    assert with_bos.encode(text, add_special=True) == [with_bos.bos_id, *plain.encode(text)]
    assert plain.decode([plain.eos_id]) == "<|endoftext|>"


def test_bos_from_the_post_processor(tiny_bundle: Bundle) -> None:
    """Llama 3's configuration says nothing of BOS; its tokenizer.json adds it."""
    folder = tiny_bundle(add_bos_token=None)
    assert len(Tokenizer(folder).encode("a", add_special=True)) == 1
    tokenizer = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    bos = "<|im_start|>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A"], special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    assert Tokenizer(folder).decode(Tokenizer(folder).encode("a", add_special=True)) == "<|im_start|>a"


def test_offsets_cover_every_character(tiny_bundle: Bundle) -> None:
    """Also with the byte-level post-processor, which leaves spaces out."""
    folder = tiny_bundle()
    hf = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    hf.post_processor = processors.ByteLevel(trim_offsets=True)
    hf.save(str(folder / "tokenizer.json"))
    ids, offsets = Tokenizer(folder).encode_with_offsets("a yé ")
    assert offsets == [(0, 1), (1, 3), (3, 4), (3, 4), (4, 5)]
    assert len(ids) == 5


def test_texts_that_cannot_be_taken(tiny_bundle: Bundle) -> None:
    folder = tiny_bundle()
    with pytest.raises(
        UserError, match="^the model's tokenizer cannot process this text: it has an unpaired surrogate$"
    ):
        Tokenizer(folder).encode("a\ud83d")
    # Of a vocabulary with neither the word nor a token for unknown ones.
    hf = HfTokenizer(models.WordLevel({"a": 0, "<|endoftext|>": 1}, unk_token="<unk>"))
    hf.save(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(folder)
    assert tokenizer.encode("a") == [0]
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets, lambda text: list(tokenizer.encode_long([text]))):
        with pytest.raises(UserError, match=r"^the model's tokenizer cannot process this text: WordLevel error: .*$"):
            encode("b")


def test_token_numbers_beyond_a_token_file(tiny_bundle: Bundle) -> None:
    folder = tiny_bundle()
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    values["model"]["vocab"]["a"] = 1 << 31
    file.write_text(json.dumps(values))
    tokenizer = Tokenizer(folder)
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_long([text]))):
        with pytest.raises(UserError, match="has a token with id 2147483648; it must be at most 2147483647"):
            encode("a")
    values["added_tokens"][0]["id"] = values["model"]["vocab"]["<|endoftext|>"] = 1 << 31
    file.write_text(json.dumps(values))
    with pytest.raises(UserError, match="has a token with id 2147483648"):
        Tokenizer(folder)


@pytest.mark.parametrize(("part", "steps"), [("normalizer", "normalizers"), ("decoder", "decoders")])
def test_replacements_without_end(part: str, steps: str, tiny_bundle: Bundle) -> None:
    """Each doubles the text, and forty are beyond any memory."""
    folder = tiny_bundle()
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    for pattern, content, times, growth in (
        ({"String": "a"}, "aa", 40, 1 << 40),
        ({"String": "abc"}, "abcdefg", 7, 3**7),
        ({"Regex": "a|"}, "aaaaaaaaa", 4, 10**4),
        ({"String": "a"}, "aa", 3, None),
        ({"String": " "}, "\u2581", 99, None),
        ({"String": "abc"}, "", 9, None),
    ):
        step = {"type": "Replace", "pattern": pattern, "content": content}
        file.write_text(json.dumps(values | {part: {"type": "Sequence", steps: [step] * times}}))
        if growth is None:
            Tokenizer(folder)
        else:
            with pytest.raises(UserError, match=f"tokenizer.json: its replacements turn one character into {growth}"):
                Tokenizer(folder)


def test_a_normalizer_nested_deeply(tiny_bundle: Bundle) -> None:
    folder = tiny_bundle()
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    values["normalizer"] = {"type": "NFC"}
    for _ in range(40):
        values["normalizer"] = {"type": "Sequence", "normalizers": [values["normalizer"]]}
    file.write_text(json.dumps(values))
    with pytest.raises(UserError, match="tokenizer.json: not a Hugging Face tokenizer: brackets nested deeper than 64"):
        Tokenizer(folder)


def test_truncation_and_padding_of_the_file_are_off(tiny_bundle: Bundle) -> None:
    folder = tiny_bundle()
    hf = HfTokenizer.from_file(str(folder / "tokenizer.json"))
    hf.enable_truncation(4)
    hf.enable_padding(length=4)
    hf.save(str(folder / "tokenizer.json"))
    assert len(Tokenizer(folder).encode("abcdef")) == 6
    assert len(Tokenizer(folder).encode("ab")) == 2


def test_padding_of_the_file_takes_no_memory(tiny_bundle: Bundle) -> None:
    """Also while the post-processor is asked whether it adds BOS."""
    folder = tiny_bundle(add_bos_token=None)
    file = folder / "tokenizer.json"
    padding = {"strategy": {"Fixed": 1 << 44}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    padding |= {"pad_type_id": 0, "pad_token": "x"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"padding": padding}))
    assert len(Tokenizer(folder).encode("ab")) == 2


def test_render_chat(tiny_bundle: Bundle, chatml: str) -> None:
    tokenizer = Tokenizer(tiny_bundle(chat_template=chatml))
    user = "<|im_start|>user\nIs <a> & 'b' ü?<|im_end|>\n"
    assert tokenizer.render_chat(MESSAGES) == user + "<|im_start|>assistant\nyes<|im_end|>\n"
    assert tokenizer.render_chat(MESSAGES[:1], add_generation_prompt=True) == user + "<|im_start|>assistant\n"


SHOWN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),  # trim_blocks and lstrip_blocks
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Is <a> & \'b\' ü?"}'),
        ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<|im_start|><|endoftext|>"),
        ("{{ tools is none }}", "True"),
        (
            "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content|length }}{% endfor %}",
            "15",
        ),
        ("a{% generation %}{{ messages[0].role }}{% endgeneration %}b", "auserb"),
        ("{{ strftime_now('%Y') }}", str(datetime.datetime.now().year)),
    ],
)
def test_template_environment(template: str, text: str, tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle(chat_template=template + SHOWN))
    shown = "".join(message["content"] for message in MESSAGES[:1])
    assert tokenizer.render_chat(MESSAGES[:1], add_generation_prompt=True) == text + shown


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "rejects these messages: roles must alternate"),
        ("{{ messages.append(1) }}", "rejects these messages"),  # the sandbox: templates change nothing
        ("{{ ''.__class__.__mro__ }}", "rejects these messages"),
        (None, "no chat template"),
    ],
)
def test_render_chat_refuses(template: str | None, message: str, tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle(chat_template=template))
    assert tokenizer.has_chat_template is (template is not None)
    with pytest.raises(UserError, match=message):
        tokenizer.render_chat(MESSAGES)


def test_tokens_written_as_objects(tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle(eos_token={"content": "<|im_end|>", "lstrip": False}))
    assert tokenizer.decode([tokenizer.eos_id]) == "<|im_end|>"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"eos_token": None}, "tokenizer_config.json: eos_token"),
        ({"eos_token": "<nope>"}, "tokenizer_config.json: eos_token"),
        ({"eos_token": 3}, "tokenizer_config.json: eos_token is 3; it must be a token's text"),
        ({"pad_token": {"content": ["<pad>"]}}, "tokenizer_config.json: pad_token is {'content'"),
        ({"eos_token": "\ud800"}, "the model's tokenizer cannot process eos_token: "),
        (
            {"chat_template": "{% include 'other' %}"},
            "chat_template is not a Jinja template: line 1: the tag include is not",
        ),
        ({"add_bos_token": True, "bos_token": None}, "tokenizer_config.json: add_bos_token"),
        ({"chat_template": "{% if %}"}, "tokenizer_config.json: chat_template is not a Jinja template"),
        ({"chat_template": [{"name": "default"}]}, "chat_template is a list; it must be a string"),
    ],
)
def test_configurations_that_cannot_be_used(config: dict[str, Any], message: str, tiny_bundle: Bundle) -> None:
    folder = tiny_bundle(**config)
    with pytest.raises(UserError, match=message):
        Tokenizer(folder)


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ("3", [3]),
        ("[3, 5, 3, 257]", [3, 5]),
        ("null", []),
        ("[-1]", None),
        ('"3"', None),
        ("true", None),
        ("3.0", None),
    ],
)
def test_generation_config(given: str, ends: list[int] | None, tiny_bundle: Bundle) -> None:
    folder = tiny_bundle()
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {given}}}')
    if ends is None:
        with pytest.raises(
            UserError, match="generation_config.json: eos_token_id is .*; it must be one or several token ids"
        ):
            Tokenizer(folder)
    else:
        tokenizer = Tokenizer(folder)
        assert tokenizer.eos_id == 257 and tokenizer.end_ids == [257, *ends]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_files(name: str, tiny_bundle: Bundle) -> None:
    file = tiny_bundle() / name
    for damage in ["{", json.dumps([1]), None]:
        file.write_text(damage) if damage else file.unlink()
        with pytest.raises(UserError, match=f"{name}: (not a|not JSON|must be a JSON|no such file)"):
            Tokenizer(file.parent)


def test_stream_shows_only_whole_characters(tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle())
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("a é🙂<|im_end|>b")
    assert [stream.add(token) for token in ids] == ["a", " ", "", "é", "", "", "", "🙂", "", "b"]
    assert stream.finish() == ""
    stream.add(tokenizer.encode("é")[0])
    assert stream.finish() == "\ufffd"


def test_stream_after_bytes_that_are_no_text(tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle())
    stream = TextStream(tokenizer)
    second_byte, (letter,) = tokenizer.encode("é")[1], tokenizer.encode("x")
    assert [stream.add(token) for token in [second_byte, letter, letter]] == ["", "\ufffdx", "x"]


def test_stream_keeps_sentencepiece_spaces(tmp_path: Path) -> None:
    """These decoders drop the space before the first word: only before the first."""
    from mobile_ft.export.source.gguf_tokenizer import write_tokenizer

    fields: dict[str, Any] = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", "▁the", "▁end", "▁"],
        "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0],
        "token_type": [2, 3, 3, 1, 1, 1],
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    write_tokenizer({f"tokenizer.ggml.{key}": value for key, value in fields.items()}, tmp_path)
    stream = TextStream(Tokenizer(tmp_path))
    assert [stream.add(token) for token in [1, 3, 4, 2, 3]] == ["", "the", " end", "", " the"]


def test_stream_of_byte_tokens_that_are_no_text(tmp_path: Path) -> None:
    """A run of such tokens is replaced as a whole. Bytes before, which were text, are not shown once more."""
    names = ["</s>", "▁a", "▁b", "<0x0A>", "<0xE2>", "<0x82>", "<0xAC>", "<0xF0>"]
    tokenizer = HfTokenizer(models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    cases: list[tuple[list[str], list[str]]] = [
        (["<0x0A>", "<0xF0>", "▁b", "▁a"], ["\n", "", "\ufffd b", " a"]),
        (["<0xE2>", "<0x82>", "<0xAC>", "<0xF0>", "▁b"], ["", "", "€", "", "\ufffd b"]),
        (["▁a", "<0xE2>", "<0x82>", "▁b", "<0x0A>"], ["a", "", "", "\ufffd\ufffd b", "\n"]),
        (["▁a", "<0x0A>", "▁b"], ["a", "\n", " b"]),
        (["<0x0A>", "<0xF0>", "<0xE2>"], ["\n", "", "", "\ufffd\ufffd"]),
    ]
    for tokens, pieces in cases:
        stream = TextStream(Tokenizer(tmp_path))
        shown = [stream.add(names.index(token)) for token in tokens]
        assert shown + ([stream.finish()] if len(pieces) > len(tokens) else []) == pieces


def test_stream_adds_up_to_the_text(smollm2_bundle: Path) -> None:
    tokenizer = Tokenizer(smollm2_bundle)
    text = "Streams of 日本語, 🙂👍🏽 and naïve words:\n\n 1, 2, 3."
    stream = TextStream(tokenizer)
    pieces = [stream.add(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
