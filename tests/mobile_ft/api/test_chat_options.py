"""Variables, dates and tools of chat templates, from the Python library and the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mobile_ft import UserError, evaluate, export_bundle, load, train
from mobile_ft.bundle.description import checksum
from mobile_ft.data.tokenizer import Tokenizer
from tests.chat_templates import HERMES, TOOL
from tests.hf_models import FAMILIES, random_model
from tests.mobile_ft.conftest import Cli

# Shows a date, and a thought where one is wanted.
TEMPLATE = (
    "{{ strftime_now('%Y-%m-%d') }}\n{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if thinking %}hm\n{% endif %}{% endif %}"
)


@pytest.fixture
def dated(bare_bundle: Path, tiny_bundle: Callable[..., Path], tmp_path: Path) -> Path:
    path = tmp_path / "dated.bundle"
    shutil.copytree(bare_bundle, path)
    description = json.loads((path / "bundle.json").read_text())
    for file in tiny_bundle("dated", chat_template=TEMPLATE, eos_token="<|im_end|>").iterdir():
        shutil.copy(file, path)
        description["checksums"][file.name] = checksum(file)
    (path / "bundle.json").write_text(json.dumps(description))
    return path


def test_a_date_is_recorded_and_repeated(dated: Path, data: Path, tmp_path: Path, cli: Cli) -> None:
    options: dict[str, Any] = {"steps": 1, "seq_len": 64, "progress": False}
    first = train(dated, data, tmp_path / "first", chat_template_date="2020-02-29", **options)
    assert yaml.safe_load((first.adapter / "run.yaml").read_text())["chat_template_date"] == "2020-02-29"
    again = ["train", "--config", first.adapter / "run.yaml", "--out", tmp_path / "again"]
    assert cli(*again).code == 0
    tokens = [(tmp_path / run / "tokens.safetensors").read_bytes() for run in ("first", "again")]
    assert tokens[0] == tokens[1] and len(tokens[0])
    today = train(dated, data, tmp_path / "today", **options)
    assert "chat_template_date" in yaml.safe_load((today.adapter / "run.yaml").read_text())
    assert (tmp_path / "today" / "tokens.safetensors").read_bytes() != tokens[0]
    # Resumed on another day, or without what else decides over the tokens, it is the same run.
    train(dated, data, tmp_path / "whole", mask_prompt=False, **options)
    assert train(dated, data, tmp_path / "whole", resume=True, progress=False).options["seq_len"] == "64"
    assert train(dated, data, tmp_path / "first", resume=True, **options).losses == first.losses
    with pytest.raises(UserError, match="date soon: must have the form YYYY-MM-DD"):
        train(dated, data, tmp_path / "other", chat_template_date="soon", **options)


def test_no_date_where_none_is_shown(bundle: Path, data: Path, tmp_path: Path) -> None:
    run = train(bundle, data, tmp_path / "out", steps=1, seq_len=64, progress=False)
    assert "chat_template_date" not in yaml.safe_load((run.adapter / "run.yaml").read_text())


def test_variables_of_the_template(dated: Path, bundle: Path, data: Path, tmp_path: Path, cli: Cli) -> None:
    model = load(dated)
    plain = model.generate("Hi", max_tokens=1).prompt_tokens
    assert model.generate("Hi", max_tokens=1, chat_template_kwargs={"thinking": True}).prompt_tokens == plain + 3
    assert model.chat([{"role": "user", "content": "Hi"}], max_tokens=1).prompt_tokens == plain
    with pytest.raises(UserError, match="the model's chat template has no variable thoughts"):
        model.generate("Hi", max_tokens=1, chat_template_kwargs={"thoughts": True})
    command = ["generate", dated, "--prompt", "Hi", "--max-tokens", 1, "--chat-template-kwargs"]
    assert cli(*command, '{"thinking": true}').code == 0
    assert "has no variable thoughts" in cli(*command, '{"thoughts": true}').err
    assert "is [1]; it must be an object" in cli(*command, "[1]").err
    arguments: dict[str, Any] = {"steps": 1, "seq_len": 64, "progress": False}
    with pytest.raises(UserError, match="has no variable thinking"):
        train(bundle, data, tmp_path / "out", chat_template_kwargs='{"thinking": true}', **arguments)
    report = tmp_path / "eval.json"
    masked = evaluate(dated, data, seq_len=64, progress=False)
    for options, more in (([], False), (["--mask-prompt"], False), (["--no-mask-prompt"], True)):
        assert cli("eval", dated, "--data", data, "--seq-len", 64, "--json", report, *options).code == 0
        assert (json.loads(report.read_text())["tokens"] > masked.tokens) is more


def test_a_template_of_ones_own(tiny_bundle: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "hermes.jinja").write_text(HERMES)
    folder, out = tmp_path / "model", tmp_path / "bundle"
    model = random_model(FAMILIES["llama3"])
    model.resize_token_embeddings(288)  # the tokenizer's
    model.save_pretrained(folder)
    for file in tiny_bundle("tokenizer").iterdir():
        shutil.copy(file, folder)
    export_bundle(folder, out, chat_template=tmp_path / "hermes.jinja", max_seq_len=64, progress=False)
    tokenizer = Tokenizer(out)
    assert tokenizer.chat_template == HERMES
    text = tokenizer.render_chat([{"role": "user", "content": "a"}], add_generation_prompt=True, tools=[TOOL])
    assert '{"name": "get_weather"' in text
    (tmp_path / "bad.jinja").write_text("{% if %}")
    with pytest.raises(UserError, match="chat_template is not a Jinja template"):
        export_bundle(folder, tmp_path / "b", chat_template=tmp_path / "bad.jinja", progress=False)
    assert not (tmp_path / "b").exists()
