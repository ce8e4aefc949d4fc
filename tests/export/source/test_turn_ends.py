"""The special token that a chat template writes behind an answer ends an answer, whatever other files name."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken

from mobile_ft.data.device_text import write_device_text
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.export.source.end_tokens import add_turn_end
from mobile_ft.runtime._core import BundleText
from tests.chat_templates import PUBLISHED, published
from tests.runtime.test_tokenizer import TOKENIZERS

ENDS = {
    "llama-3": "<|eot_id|>",
    "llama-3.1": "<|eot_id|>",
    "llama-3.2": "<|eot_id|>",
    "gemma": "<end_of_turn>",
    "gemma-3": "<end_of_turn>",
    "gemma-4": "<turn|>",
    "phi-3": "<|end|>",
    "phi-3.5": "<|end|>",
    "r1-distill": "<｜end▁of▁sentence｜>",
    "smolvlm": "<end_of_utterance>",
}


def write_tokenizer(folder: Path, template: str | None, special: str | None) -> Tokenizer:
    """With </s> as its eos_token, and the tokens 7 and `special` as special ones."""
    hf = TOKENIZERS["smollm2"]()
    hf.add_special_tokens([AddedToken("</s>", special=True)])
    if special is not None:
        hf.add_special_tokens([AddedToken(special, special=True)])
    hf.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "</s>", "bos_token": "<s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 7, "temperature": 0.6}))
    return Tokenizer(folder)


@pytest.mark.parametrize("name", [*PUBLISHED, "hermes", "chatml"])
def test_of_published_templates(name: str, tmp_path: Path) -> None:
    end = ENDS.get(name, "<|im_end|>")
    tokenizer = write_tokenizer(tmp_path, published(name), end)
    expected = list(dict.fromkeys([tokenizer.eos_id, 7, tokenizer.token_id(end)]))
    add_turn_end(tmp_path, tokenizer)
    assert tokenizer.end_ids == Tokenizer(tmp_path).end_ids == expected
    assert json.loads((tmp_path / "generation_config.json").read_text())["temperature"] == 0.6
    write_device_text(tmp_path)
    files = [str(tmp_path / file) for file in ("tokenizer.json", "tokenizer_config.json", "text.json")]
    assert BundleText(*files).end_tokens == expected


@pytest.mark.parametrize(
    ("template", "special"),
    [
        (None, None),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None),  # plain text follows
        ("{% for m in messages %}{{ m.content }}<end>{% endfor %}", None),  # <end> is no token
        ("{% for m in messages %}{{ m.content }} <end>{% endfor %}", "<start>"),
        ("{{ raise_exception('Tools alone') }}", None),
    ],
)
def test_nothing_is_added(template: str | None, special: str | None, tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path, template, special)
    before = (tmp_path / "generation_config.json").read_text()
    add_turn_end(tmp_path, tokenizer)
    assert tokenizer.end_ids == [tokenizer.eos_id, 7]
    assert (tmp_path / "generation_config.json").read_text() == before
