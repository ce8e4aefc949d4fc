"""The runtime's Jinja against Jinja itself: snippets, published templates with random dialogues, and harmful ones."""

import json
import random
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.runtime import ChatTemplate, RuntimeFailure
from mobile_ft.runtime._core import render_template
from tests.chat_templates import (
    PUBLISHED,
    TOKENS,
    TOOL,
    all_of_trl,
    of_llama_cpp,
    published,
    random_chat,
    with_transformers,
)
from tests.harmful_templates import CHAT, HARMFUL


def outcome(render: Callable[[], str]) -> str | None:
    try:
        return render()
    except Exception:
        return None


def with_jinja(source: str, variables: dict[str, Any]) -> str:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    text: str = _compile_jinja_template(source).render(**variables)
    return text


SNIPPETS = (Path(__file__).parent / "jinja_snippets.txt").read_text(encoding="utf-8").split("\n----\n")


@pytest.mark.parametrize("source", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_render_as_with_jinja(source: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    variables: dict[str, Any] = {"messages": messages, "number": 3, "names": {"b": 1, "A": 2.5, "c": None}}
    ours = outcome(lambda: render_template(source, json.dumps(variables)))
    assert ours == outcome(lambda: with_jinja(source, variables))


_CASES = """{% for s in texts %}{{ [s.upper(), s.lower(), s.title(), s.capitalize(), s.islower(), s.isupper(),
s.isalpha(), s.isdigit(), s.isnumeric(), s.isalnum(), s.isspace(), s | title] | tojson }}{% endfor %}"""


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_letter_cases_are_those_of_python(every: int) -> None:
    """Of the characters that this Python's Unicode has and that are not for private use, alone and around a sigma."""
    known = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    known = known[:0x3000] + known[0x3000::every]  # most letters with cases are at the beginning
    texts = known + [f"a{c}Σ{c}b {c}ΣΣ{c}" for c in known if unicodedata.category(c) not in ("Lo", "So")]
    for i in range(0, len(texts), 500):
        variables = {"texts": texts[i : i + 500]}
        assert render_template(_CASES, json.dumps(variables)) == with_jinja(_CASES, variables)


@pytest.mark.parametrize("path", all_of_trl(), ids=lambda path: path.stem)
def test_published_templates_render_as_with_transformers(path: Path) -> None:
    compare(path.read_text(), 20, path.stem)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PUBLISHED, "hermes"])
def test_a_thousand_dialogues_render_as_with_transformers(name: str) -> None:
    compare(published(name), 1000, name)


# Templates of llama.cpp's archive that use what the runtime refuses, or that Jinja itself makes something else of than
# was meant: with `safe`, it escapes HTML in what is put beside it.
_OTHERS = ("meetkai-functionary-medium-v3.1", "tencent-Hy3", "llama-cpp-deepseek-r1")


@pytest.mark.slow
def test_templates_of_llama_cpp_render_as_with_transformers() -> None:
    sources = of_llama_cpp()
    assert {"HuggingFaceTB-SmolLM3-3B", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"} <= set(sources)
    for name, source in sources.items():
        if name not in _OTHERS:
            compare(source, 200 if "SmolLM3" in name or "Hermes" in name else 20, name)


def compare(source: str, count: int, name: str) -> None:
    rng, rendered = random.Random(name), 0
    for _ in range(count):
        chat = random_chat(rng) | {"documents": None, "add_generation_prompt": rng.random() < 0.5} | TOKENS
        if rng.random() < 0.3:
            chat["enable_thinking"] = rng.random() < 0.5
        ours = outcome(lambda: render_template(source, json.dumps(chat)))  # noqa: B023
        theirs = outcome(lambda: with_jinja(source, chat))  # noqa: B023
        assert ours == theirs
        rendered += theirs is not None
    # Of models that take parts alone, or other forms of tools than these.
    assert rendered or name.startswith(("llava", "CohereForAI", "fireworks"))


_LIMITED = """
import resource, sys
from mobile_ft.runtime import RuntimeFailure
from mobile_ft.runtime._core import render_template
from tests.harmful_templates import CHAT, HARMFUL
import json
variables = json.dumps({"messages": CHAT})
render_template("{{ messages }}", variables)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for source in HARMFUL:
    try:
        render_template(source, variables)
    except (RuntimeFailure, TypeError):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("source", HARMFUL, ids=lambda source: ascii(source[:70]))
def test_harmful_templates_end_soon(source: str) -> None:
    start = time.process_time()
    try:
        text = render_template(source, json.dumps({"messages": CHAT}))
        assert len(text) < 1e6  # what Jinja refuses may be harmless here
    except (RuntimeFailure, TypeError):
        pass
    assert time.process_time() - start < 5  # seconds; of those that spend all they have, less than one


def test_harmful_templates_take_little_memory() -> None:
    grown = subprocess.run([sys.executable, "-c", _LIMITED], check=True, capture_output=True, text=True).stdout
    assert int(grown) < 200_000  # KB


def test_long_chats_are_within_the_budget() -> None:
    """A thousand turns of a thousand characters, with the most complex template of Qwen."""
    messages = [{"role": "user" if i % 2 else "assistant", "content": "a<b " * 250} for i in range(1, 1001)]
    chat = {"messages": messages, "tools": [TOOL], "add_generation_prompt": True}
    text = render_template(published("qwen3"), json.dumps(chat))
    assert len(text) > 1e6 and text == with_transformers(published("qwen3"), chat, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "line 1: unexpected end of the tag"),
        ("a\n{% for x in y %}", "line 2: the template ends before endfor"),
        ("{% include 'x' %}", "line 1: the tag include is not supported"),
        ("{{ 'a }}", "line 1: a string has no end"),
        ("{{ (1 }}", "unexpected"),
        ("{{ 9999999999999999999999 }}", "integers of more than 63 bits are not supported"),
        ("{{ 1 | nope }}", "no filter named 'nope' is supported"),
        ("{{ 1 is nope }}", "no test named 'nope' is supported"),
        ("{{ x.y }}", "'x' is undefined"),
        ("{{ {'a': 1}.b.c }}", "attribute 'b' of a dict is undefined"),
        ("{{ 'a' + 1 }}", "unsupported operand types for [+]: 'str' and 'int'"),
        ("{{ [].append(1) }}", "append[(][)] of a list, which templates cannot change, is undefined"),
        ("{{ {}.copy() }}", "copy[(][)] of a dict is not supported"),
        ("{% set " + "(" * 10_000 + "a" + ")" * 10_000 + " = 1 %}", "nested deeper than"),
        ("{% for i in [1] %}{% macro m() %}{% endmacro %}{% set x.m = m %}{% endfor %}{{ x.m() }}", "non-namespace"),
        ("{{ 'a' is sameas 'a' }}", "the test sameas is not supported for values of type str"),
        ("{{ année }}", "names with characters other than ASCII are not supported"),
        ("{{ 1e308 * 10 - 1e308 * 10 }}", "results that are not a number are not supported"),
        ("{{ 10000000000000000 / 3 }}", "division of integers of more than 53 bits is not supported"),
        ("{{ joiner() }}", "joiner[(][)] is not supported"),
        ("{{ '{:>9}'.format(1) }}", "format[(][)] supports only names and numbers in {}"),
        ("{{ 'a'.zfill(1) }}", "zfill[(][)] of a str is not supported"),
        ("{% break %}", "break is outside of a loop"),
        ("{{ raise_exception('no, ' ~ 1) }}", "^no, 1$"),
    ],
)
def test_what_is_wrong_is_said(source: str, message: str) -> None:
    with pytest.raises(RuntimeFailure, match=message):
        render_template(source, "{}")


def test_a_template_may_hold_itself_in_a_namespace() -> None:
    source = "{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n, loop] %}{{ n.n.n.l | length }}"
    assert render_template(source, "{}") == "2"
    with pytest.raises(RuntimeFailure, match="lists nested deeper than 64"):
        render_template(source + "{{ n }}", "{}")


def test_a_macro_cannot_be_called_when_its_block_is_over() -> None:
    source = (
        "{% set n = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{% set n.m = m %}{{ n.m() }}"
        "{% endfor %}"
    )
    assert render_template(source, "{}") == "1"
    with pytest.raises(RuntimeFailure, match="the macro 'm' is called after the end of the block"):
        render_template(source + "{{ n.m() }}", "{}")


def test_date() -> None:
    template = ChatTemplate("{{ strftime_now('%d %B %Y, %A') }}{{ messages[0].content }}", {}, date="2026-02-28")
    assert template.shows_date
    assert template.prompt('{"messages": [{"role": "user", "content": "!"}]}') == "28 February 2026, Saturday!"
    for bad in ("2026-02-30", "yesterday", "2026-1", "2026-01-01x"):
        with pytest.raises(RuntimeFailure, match="must have the form YYYY-MM-DD"):
            ChatTemplate("a", {}, date=bad)
