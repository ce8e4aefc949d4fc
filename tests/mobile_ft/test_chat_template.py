"""Published chat templates render as Transformers renders them; templates made to harm end soon, in little memory."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.chat_template import compile_template, render
from tests.harmful_templates import CHAT, HARMFUL

CALLED = [
    *CHAT[1:4],
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "123456789", "function": None}]},
    {"role": "tool", "content": "3", "name": "add", "tool_call_id": "123456789"},
    {"role": "assistant", "content": "It is 3."},
]
CALLED[3]["tool_calls"][0]["function"] = {"name": "add", "arguments": {"a": 1, "b": [2, {"c": None}]}}  # type: ignore[index]
PARTS = [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in CHAT]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": "one"}, "b": {"type": ["array", "null"]}},
            "required": ["a"],
        },
    },
}
TEMPLATES = Path(pytest.importorskip("trl").__file__).parent / "chat_templates"


def outcome(render: Callable[[], str]) -> str | None:
    try:
        return render()
    except Exception:
        return None


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_published_templates_render_as_with_transformers(path: Path) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source, rendered = path.read_text(), 0
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    ours = compile_template(source)
    for messages in (CHAT, CHAT[1:], CHAT[:2], CHAT[1:5], CALLED, PARTS):
        for tools in (None, [TOOL]):
            for prompt in (False, True):
                values: dict[str, Any] = {"tools": tools, "documents": None, "add_generation_prompt": prompt} | tokens
                theirs = outcome(lambda: render_jinja_template([messages], chat_template=source, **values)[0][0])  # noqa: B023
                assert outcome(lambda: render(ours, values | {"messages": messages})) == theirs  # noqa: B023
                rendered += theirs is not None
    assert rendered


@pytest.mark.parametrize("source", HARMFUL, ids=lambda source: ascii(source[:70]))
def test_harmful_templates_end_soon_in_little_memory(source: str) -> None:
    def run() -> None:
        render(compile_template(source), {"messages": CHAT})

    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            run()
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()
    start = time.process_time()
    with pytest.raises(ValueError):
        run()
    assert time.process_time() - start < 10  # seconds; of those that spend all they have, one or two


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 1 in (1, 2) }}{% for a, b in ((1, 2), (3, 4)) %}{{ a + b }}{% endfor %}", "True37"),
        ("{% set a, b = 1, 2 %}{{ a ~ b }}{{ 7 // 2 }}{{ 2 ** 10 }}{{ '-' * 3 }}{{ [1] * 2 }}", "1231024---[1, 1]"),
        ("{{ messages[1:]|map(attribute='role')|join(',') }}", "assistant,user"),
        ("{{ messages[::-1][0].content|trim|upper }}{{ messages|length }}", "C3"),
        ("{{ messages|selectattr('role', 'eq', 'user')|list|length }}{{ 'a,b'.split(',')[-1] }}", "2b"),
        ("{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}", "3"),
        ("{{ {'b': 1, 'a': [2]}|tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  2\n ]\n}'),
        ("{{ {'b': 1, 'a': 2}|dictsort }}{{ 'a\nb'|indent(2) }}", "[('a', 2), ('b', 1)]a\n  b"),
        ("{% macro m(x, y=2) %}{{ x }}{{ y }}{{ caller() }}{% endmacro %}{% call m(1) %}c{% endcall %}", "12c"),
        ("{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "123"),
        ("{{ '<' | safe }}{{ 'x'.join(['<', 'b']) }}{{ 'abc'|reverse }}{{ [1, 2]|reverse|list }}", "<<xbcba[2, 1]"),
        ("{% with a = 1 %}{{ a }}{% endwith %}{% filter upper %}b{% endfilter %}", "1B"),
    ],
)
def test_what_templates_may_use(source: str, text: str) -> None:
    messages = [
        {"role": role, "content": content} for role, content in [("user", "a"), ("assistant", "b"), ("user", "c")]
    ]
    assert render(compile_template(source), {"messages": messages}) == text


def test_long_chats_are_within_the_budget() -> None:
    """A thousand turns of a thousand characters, with the most complex template of Qwen."""
    messages = [{"role": "user" if i % 2 else "assistant", "content": "a<b " * 250} for i in range(1, 1001)]
    source = (TEMPLATES / "qwen3.jinja").read_text()
    assert len(render(compile_template(source), {"messages": messages, "tools": [json.loads(json.dumps(TOOL))]})) > 1e6
