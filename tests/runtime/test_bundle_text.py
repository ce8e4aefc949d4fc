"""Rows of text as tokens, in the runtime and in Python."""

import json
from pathlib import Path

import numpy as np
import pytest

from mobile_ft.data import encode_rows
from mobile_ft.device_text import write_device_text
from mobile_ft.packing import NO_LOSS
from mobile_ft.rows import read_rows
from mobile_ft.runtime import RuntimeFailure
from mobile_ft.runtime._core import BundleText
from mobile_ft.tokenizer import Tokenizer
from tests.mobile_ft.test_chat_table import TEMPLATES
from tests.runtime.test_tokenizer import SENTENCES, TOKENIZERS

NUMBERED = "{% for m in messages %}{{ loop.index }}. {{ m.content }}\n{% endfor %}"
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
    return BundleText(str(folder / "tokenizer.json"), str(folder / "text.json"))


def rows_of(row: tuple[list[int], list[bool]]) -> tuple[list[int], list[int]]:
    tokens, learned = row
    return tokens[:-1], [t if flag else NO_LOSS for t, flag in zip(tokens[1:], learned[1:], strict=True)]


@pytest.mark.parametrize("tokenizer", ["smollm2", "llama3", "qwen", "llama2", "gemma", "unigram"])
@pytest.mark.parametrize("template", [None, *TEMPLATES])
def test_the_same_rows_as_in_python(tokenizer: str, template: str | None, tmp_path: Path) -> None:
    folder = folder_of(tokenizer, TEMPLATES[template] if template else None, tmp_path, bos=template is None)
    ours, python = open_text(folder), Tokenizer(folder)
    assert ours.end_tokens == python.end_ids and ours.end_tokens[1:] == [7, 9]
    rows = [{"prompt": f"{text} ->", "completion": f" {text[::-1]}"} for text in SENTENCES[:2]]
    rows += [{"text": text} for text in SENTENCES]
    found = [ours.pair(row["prompt"], row["completion"]) if "prompt" in row else ours.text(row["text"]) for row in rows]
    if template:
        rows += [{"messages": [{"role": r, "content": c} for r, c in chat]} for chat in CHATS]
        found += [ours.chat(chat) for chat in CHATS if template != "qwen3" or len(chat) < 5]
        if template == "qwen3":
            with pytest.raises(RuntimeFailure, match="template changes what comes before message 3"):
                ours.chat(CHATS[1])
            del rows[-2]
        messages = [{"role": r, "content": c} for r, c in CHATS[1][:2]]
        prompt = python.encode(python.render_chat(messages, add_generation_prompt=True))
        assert ours.prompt(CHATS[1][:2]) == prompt
    expected = encode_rows(read_rows(rows, "train"), python, 4096).rows
    assert len(expected) == len(rows)
    for row, ids in zip(expected, found, strict=True):
        assert not isinstance(row, tuple)
        assert (row.tokens.tolist(), np.asarray(row.targets).tolist()) == rows_of(ids)


def test_no_template_and_one_without_a_table(tmp_path: Path) -> None:
    text = open_text(folder_of("smollm2", None, tmp_path))
    with pytest.raises(RuntimeFailure, match="the model has no chat template; use prompt and completion, or text"):
        text.chat(CHATS[0])
    text = open_text(folder_of("smollm2", NUMBERED, tmp_path))
    for encode in (lambda: text.chat(CHATS[0]), lambda: text.pair("a", "b"), lambda: text.prompt(CHATS[0][:1])):
        with pytest.raises(RuntimeFailure, match="cannot be used on the device: what it puts between messages is not"):
            encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON|Invalid argument|empty"),
        ("{", "not JSON"),
        ("{}", "key 'bos' not found"),
        ('{"bos": -1, "ends": [1], "chat": null}', "-1 is no token"),
        ('{"bos": null, "ends": [], "chat": null}', "names no token that ends a text"),
        ('{"bos": null, "ends": [1], "chat": {"gaps": {}}}', "key 'stripped' not found"),
        ('{"bos": null, "ends": [1], "chat": {"gaps": [], "stripped": {}, "refused": []}}', "type must be"),
        ('{"bos": null, "ends": [1], "chat": 3}', "type must be string"),
    ],
)
def test_damaged(content: str, message: str, tmp_path: Path) -> None:
    folder = folder_of("smollm2", None, tmp_path)
    (folder / "text.json").write_text(content)
    with pytest.raises(RuntimeFailure, match=f"text.json: .*({message})"):
        open_text(folder)
