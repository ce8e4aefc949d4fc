"""Chat templates as tables of texts: what they render, and which have none."""

import random
from typing import Any

import pytest

from mobile_ft.chat_table import ChatTable, compile_chat, random_dialogue
from mobile_ft.chat_template import Message, compile_template, render

CHATML = (
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "<|im_start|>system\nHi.<|im_end|>\n{% endif %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{% for message in messages %}{% if loop.first %}<|begin|>{% endif %}<|start|>{{ message.role }}<|end|>\n\n"
    "{{ message.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|end|>\n\n{% endif %}"
)
# Gemma's: the system message becomes a part of the first question, and roles have to alternate.
GEMMA = (
    "<bos>{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}"
    "<start>{{ 'model' if message.role == 'assistant' else message.role }}\n{{ first if loop.first else '' }}"
    "{{ message.content | trim }}<end>\n{% endfor %}{% if add_generation_prompt %}<start>model\n{% endif %}"
)
# Qwen3's: only the last answer has its thoughts.
QWEN3 = (
    "{% set ns = namespace(last=messages|length - 1, open=true) %}{% for message in messages[::-1] %}"
    "{% if ns.open and message.role == 'user' %}{% set ns.open = false %}"
    "{% set ns.last = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{% if message.role == 'assistant' and loop.index0 > ns.last and loop.last %}"
    "<think>\n\n</think>\n\n{{ message.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ message.content }}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# SmolLM3's tag around what is learned, which Transformers adds to Jinja.
GENERATION = (
    "{% for message in messages %}{{ message.role }}: {% generation %}{{ message.content }}{% endgeneration %};"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
TEMPLATES = {"generation": GENERATION, "chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "qwen3": QWEN3}


def table(source: str) -> tuple[ChatTable, Any]:
    template = compile_template(source)

    def jinja(messages: list[Message], add_generation_prompt: bool) -> str:
        return render(template, {"messages": messages, "add_generation_prompt": add_generation_prompt})

    return compile_chat(jinja, source), jinja


@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_what_jinja_renders(name: str) -> None:
    compiled, jinja = table(TEMPLATES[name])
    rng = random.Random(7)
    rendered = 0
    for _ in range(1000):
        messages, prompt = random_dialogue(rng), rng.random() < 0.5
        try:
            found = compiled.render(messages, prompt)
        except ValueError:
            continue
        assert found == jinja(messages, prompt)
        rendered += 1
    assert rendered > 600


def test_texts_that_a_template_looks_for() -> None:
    source = (
        "{% for m in messages %}{% if 'tool' in m.content or 3 in [4] %}!{% endif %}{{ m.role }}: "
        "{{ m.content.split('</s>', 1)[0] | replace('<pad>', '') }}\n{% endfor %}"
    )
    assert set(table(source)[0].refused) == {"tool", "</s>", "<pad>"}


def test_messages_that_are_refused() -> None:
    question, answer = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
    qwen3 = table(QWEN3)[0]
    with pytest.raises(ValueError, match="treats '</think>' in a message apart"):
        qwen3.render([question, {"role": "assistant", "content": "hm</think>yes"}])
    with pytest.raises(ValueError, match="no message is a user's"):
        qwen3.render([answer])
    with pytest.raises(ValueError, match="the model's chat template has no user behind user there"):
        table(GEMMA)[0].render([question, question])


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{% for m in messages %}{{ m.role }}: {{ m.content | upper }}\n{% endfor %}", "no table of texts makes"),
        ("{% for m in messages %}{{ loop.index }}. {{ m.content }}\n{% endfor %}", "is not always the same"),
        ("{{ messages[-1].content }}", "no table of texts makes|is not always the same"),
        ("{{ raise_exception('never') }}", "it shows no dialogue as it is"),
    ],
)
def test_templates_without_a_table(source: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        table(source)
