"""Rows of text as tokens, in the runtime and in Python."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.data.device_text import write_device_text
from mobile_ft.data.packing import NO_LOSS
from mobile_ft.data.prepare import encode_rows
from mobile_ft.data.rows import read_rows
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.runtime import RuntimeFailure
from mobile_ft.runtime._core import BundleText
from tests.chat_templates import published, random_chat
from tests.runtime.test_tokenizer import SENTENCES, TOKENIZERS

TEMPLATES = [
    *("chatml", "hermes", "qwen3", "llama-3.2", "gemma-3", "lfm2", "r1-distill"),
    *("gemma-4", "phi-3.5", "qwen3.5", "smolvlm", "nemotron-3-nano"),
]
CHATS = [
    [("user", "Who are you?"), ("assistant", " I am\n")],
    [("system", "Be brief. "), ("user", "hello"), ("assistant", "hi"), ("user", "and\nnow?"), ("assistant", "bye é")],
    [("user", SENTENCES[2]), ("assistant", SENTENCES[0])],
]


def folder_of(tokenizer: str, template: str | None, folder: Path, bos: bool = False) -> Path:
    hf = TOKENIZERS[tokenizer]()
    hf.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "bos_token": "<mask>", "add_bos_token": bos, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    write_device_text(folder)
    return folder


def open_text(folder: Path) -> BundleText:
    return BundleText(*(str(folder / name) for name in ("tokenizer.json", "tokenizer_config.json", "text.json")))


def rows_of(row: tuple[list[int], list[bool]]) -> tuple[list[int], list[int]]:
    tokens, learned = row
    return tokens[:-1], [t if flag else NO_LOSS for t, flag in zip(tokens[1:], learned[1:], strict=True)]


@pytest.mark.parametrize("tokenizer", ["smollm2", "llama3", "qwen", "llama2", "gemma", "unigram"])
@pytest.mark.parametrize("template", [None, *TEMPLATES])
def test_the_same_rows_as_in_python(tokenizer: str, template: str | None, tmp_path: Path) -> None:
    source = published(template) if template else None
    folder = folder_of(tokenizer, source, tmp_path, bos=template is None)
    ours, python = open_text(folder), Tokenizer(folder)
    assert ours.end_tokens == python.end_ids and ours.end_tokens[1:] == [7, 9]
    rows: list[Any] = [{"prompt": f"{text} ->", "completion": f" {text[::-1]}"} for text in SENTENCES[:2]]
    rows += [{"text": text} for text in (*SENTENCES, "<mask>a<|im_end|>")]
    if template:
        rows += [{"messages": [{"role": r, "content": c} for r, c in chat]} for chat in CHATS]
        rng = random.Random(0)
        rows += [random_chat(rng) for _ in range(5)]
        chat = {"messages": [{"role": r, "content": c} for r, c in CHATS[1][:2]]}
        prompt = python.encode(python.render_chat(chat["messages"], add_generation_prompt=True))
        assert ours.prompt(json.dumps(chat)) == prompt
    compared = 0
    for row in rows:
        try:
            (found,) = ours.row(json.dumps(row))
        except RuntimeFailure as error:
            with pytest.raises(UserError) as expected:
                encode_rows(read_rows([row], "train"), python, 4096)
            assert str(expected.value) == f"row 1: {error}"
            continue
        encoded = encode_rows(read_rows([row], "train"), python, 4096).rows[0]
        assert not isinstance(encoded, tuple)
        assert (encoded.tokens.tolist(), np.asarray(encoded.targets).tolist()) == rows_of(found)
        compared += 1
    assert compared >= len(rows) - 5


def test_no_template(tmp_path: Path) -> None:
    text = open_text(folder_of("smollm2", None, tmp_path))
    chat = json.dumps({"messages": [{"role": r, "content": c} for r, c in CHATS[0]]})
    with pytest.raises(RuntimeFailure, match="the model has no chat template; use prompt and completion, or text"):
        text.row(chat)
    with pytest.raises(RuntimeFailure, match="the model has no chat template"):
        text.prompt(chat)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text.json", "", "not JSON|Invalid argument|empty"),
        ("text.json", "{", "not JSON"),
        ("text.json", "{}", "key 'bos' not found"),
        ("text.json", '{"bos": -1, "ends": [1]}', "-1 is not a token id"),
        ("text.json", '{"bos": null, "ends": []}', "has no token that ends a text"),
        ("tokenizer_config.json", "{", "not JSON"),
        ("tokenizer_config.json", '{"chat_template": 3}', "type must be string"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "line 1: unexpected end of the tag"),
        ("tokenizer_config.json", '{"chat_template": "a", "bos_token": [1]}', "type must be string"),
    ],
)
def test_damaged(name: str, content: str, message: str, tmp_path: Path) -> None:
    folder = folder_of("smollm2", None, tmp_path)
    (folder / name).write_text(content)
    with pytest.raises(RuntimeFailure, match=f"{name}: .*({message})"):
        open_text(folder)


def test_of_an_older_bundle_the_table_of_its_template_is_not_asked(tmp_path: Path) -> None:
    folder = folder_of("smollm2", published("qwen3"), tmp_path)
    text = json.loads((folder / "text.json").read_text())
    (folder / "text.json").write_text(json.dumps(text | {"chat": "the model's chat template cannot be used"}))
    chat = json.dumps({"messages": [{"role": "user", "content": "a"}]})
    assert open_text(folder).prompt(chat) == Tokenizer(folder).encode(
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    )
