"""Published chat templates render as Transformers renders them; templates made to harm end soon, in little memory."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.chat_template import compile_template, render

PLAIN = [
    {"role": "system", "content": "Be  short.\n"},
    {"role": "user", "content": "Is <a> & 'b' ü? "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So."},
    {"role": "user", "content": "Oh"},
]
CALLED = [
    *PLAIN[1:4],
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "123456789", "function": None}]},
    {"role": "tool", "content": "3", "name": "add", "tool_call_id": "123456789"},
    {"role": "assistant", "content": "It is 3."},
]
CALLED[3]["tool_calls"][0]["function"] = {"name": "add", "arguments": {"a": 1, "b": [2, {"c": None}]}}  # type: ignore[index]
PARTS = [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in PLAIN]
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
    for messages in (PLAIN, PLAIN[1:], PLAIN[:2], PLAIN[1:5], CALLED, PARTS):
        for tools in (None, [TOOL]):
            for prompt in (False, True):
                values: dict[str, Any] = {"tools": tools, "documents": None, "add_generation_prompt": prompt} | tokens
                theirs = outcome(lambda: render_jinja_template([messages], chat_template=source, **values)[0][0])  # noqa: B023
                assert outcome(lambda: render(ours, values | {"messages": messages})) == theirs  # noqa: B023
                rendered += theirs is not None
    assert rendered


HARMFUL = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) if not range(99999)|list %}{% endfor %}",
    "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{% for a in [[1], [[2]]] recursive %}{{ loop([a]) }}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for a in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x=[], y=[]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
    "{% endfor %}{{ n.x == n.y }}",
    "{% set n = namespace(x=1) %}{% for a in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {}[n.x] }}"
    "{{ 1 / 0 }}",
    "{% set n = namespace(x=1) %}{% macro m() %}{% set n.x = varargs %}{% endmacro %}"
    "{% for a in range(60) %}{{ m(n.x, n.x) }}{% endfor %}{{ {}[n.x] }}{{ {n.x: 1} }}{{ {}.get(n.x) }}",
    "{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for a in range(60) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% set n = namespace(x=[0]) %}{% for a in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ [0] * 10**10 }}",
    "{{ 10**(10**8) }}",
    "{% set n = namespace(x=3) %}{% for a in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ -0x" + "f" * 100_000 + " // 7 }}",
    "{{ '%1000000000s' % 1 }}",
    "{{ '%1000000000s' is odd }}",
    "{{ '%1000000000s' is divisibleby(1) }}",
    "{{ '%1000000000s'|format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "{{ 'a'|center(10**10) }}",
    "{{ 'a'.center(10**10) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ '1'.zfill(10**10) }}",
    "{{ '\t'.expandtabs(10**10) }}",
    "{{ 'a'|indent(10**10, true) }}",
    "{{ ('\n' * 10000)|indent('a' * 1000000) }}",
    "{{ [1]|tojson(indent=10**10) }}",
    "{{ [1]|tojson(indent=1e999) }}",
    "{{ [1]|tojson(separators=('a' * 1000000, 'b' * 1000000)) }}",
    "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
    "{{ ('a' * 100000).join(range(99999)|map('string')|list) }}",
    "{{ (range(99999)|list)|join('a' * 100000) }}",
    "{{ ('a' * 10000000).split('a') }}",
    "{{ (' a' * 10000000).split() }}",
    "{{ ('a' * 9999999).rfind('b' + 'a' * 4999999) }}",
    "{{ ('a' * 9999999).strip('b' * 4999999 + 'a') }}",
    "{{ 1.5|round(10**10, 'ceil') }}",
    "{{ lipsum(n=10**8) }}",
    "{{ dict.fromkeys(range(10**9)) }}",
    "{{ (5).to_bytes(10**10, 'big') }}",
    "{{ range(10**9)|list }}",
    "{{ range(99999)|batch(10**9, 1)|list }}",
    "{{ strftime_now('%1000000000d' * 1000000) }}",
    "{{ (-10**9)|_pay }}{% for x in [-10**9, 1e999 - 1e999]|map('_pay') %}{{ x }}{% endfor %}"
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% autoescape 'a'|center(10**10) %}{% endautoescape %}",
    "{% include 'x' %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{{ 1 / 0 }}",
    "{{ 1e300 ** 9 }}",
    "{{ messages + 1 }}",
    "{{ messages|sort }}",
    "{{ {}.nope.nope }}",
    "{{ '\ud800'.encode() }}",
    "{{ 'a'|replace() }}",
    "{{ caller() }}",
    "{{ namespace|tojson }}",
    "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{{ 1" + " + 1" * 20000 + " }}",
    "{{ a }}" * 100_000,
]


@pytest.mark.parametrize("source", HARMFUL, ids=lambda source: ascii(source[:70]))
def test_harmful_templates_end_soon_in_little_memory(source: str) -> None:
    def run() -> None:
        render(compile_template(source), {"messages": PLAIN})

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
