"""Chats through published templates: rendered as with Transformers, with every answer learned that is shown."""

import json
import random
from typing import Any

import pytest

from mobile_ft.runtime import ChatTemplate, RuntimeFailure
from tests.chat_templates import (
    CHATML,
    PUBLISHED,
    TOKENS,
    TOOL,
    as_parts,
    marked_by_transformers,
    published,
    random_chat,
    training,
    with_transformers,
)
from tests.mobile_ft.data.test_row_forms import assistant, marked, user

ASK, CALL = user("Weather in Lima?"), {"name": "get_weather", "arguments": {"city": "Lima"}}
CALLS = [{"id": "call_1", "type": "function", "function": CALL}]
CALLS_AS_TEXT = [{"id": "call_1", "type": "function", "function": CALL | {"arguments": '{"city": "Lima"}'}}]
RESULT = {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "18 C"}


def weather(calls: list[Any], **content: Any) -> dict[str, Any]:
    call = {"role": "assistant", "tool_calls": calls} | content
    return {"tools": [TOOL], "messages": [ASK, call, RESULT, assistant("It is 18 C in Lima.")]}


CALLED = {
    "qwen2.5": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n</tool_call><|im_end|>\n',
    "qwen3": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n</tool_call><|im_end|>\n',
    "qwen3-2507": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n</tool_call><|im_end|>\n',
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Lima"}}\n</tool_call><|im_end|>\n',
    "llama-3.1": '{"name": "get_weather", "parameters": {"city": "Lima"}}<|eot_id|>',
    "llama-3.2": '{"name": "get_weather", "parameters": {"city": "Lima"}}<|eot_id|>',
    "lfm2": "<|tool_call_start|>[get_weather(city='Lima')]<|tool_call_end|><|im_end|>\n",
}


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("calls", [CALLS, CALLS_AS_TEXT], ids=["object", "text"])
@pytest.mark.parametrize("content", [{"content": ""}, {"content": None}, {}], ids=["empty", "null", "absent"])
def test_calls_of_tools_are_learned_and_their_results_are_not(name: str, calls: Any, content: dict[str, Any]) -> None:
    (text,) = marked(weather(calls, **content), published(name))
    thought = "<think>\n\n</think>\n\n" if name == "qwen3" else ""
    end = "<|eot_id|>" if "llama" in name else "<|im_end|>\n"
    assert f"[{CALLED[name]}]" in text and f"[{thought}It is 18 C in Lima.{end}]" in text
    assert text.count("get_weather") >= 2  # of the tools too


GEMMA_CALL = '<|tool_call>call:get_weather{city:<|"|>Lima<|"|>}<tool_call|>'
GEMMA_RESULT = '<|tool_response>response:get_weather{value:<|"|>18 C<|"|>}<tool_response|>'


@pytest.mark.parametrize("result", [RESULT, RESULT | {"content": [{"type": "text", "text": "18 C"}]}])
def test_results_of_tools_within_the_message_that_calls_them(result: dict[str, Any]) -> None:
    """Gemma 4's template shows them there. The model ends a call with <|tool_response>."""
    head, rest = "<|tool_response>", GEMMA_RESULT.removeprefix("<|tool_response>")

    def learned(*turns: dict[str, Any]) -> str:
        (text,) = marked({"tools": [TOOL], "messages": [ASK, *turns]}, published("gemma-4"))
        return text.split("Weather in Lima?<turn|>\n<|turn>model\n")[1]

    call, answer = assistant("", tool_calls=CALLS), assistant("It is 18 C.")
    once = f"[{GEMMA_CALL}{head}]{rest}"
    assert learned(call, result) == once
    assert learned(call, result, answer) == f"{once}[It is 18 C.<turn|>\n]"
    assert learned(call, result, result, answer) == f"{once}{GEMMA_RESULT}[It is 18 C.<turn|>\n]"
    assert learned(call, result, call, result, answer) == f"{once}{once}[It is 18 C.<turn|>\n]"
    assert learned(call | {"weight": 0}, result, answer) == f"{GEMMA_CALL}{GEMMA_RESULT}[It is 18 C.<turn|>\n]"
    # Content is shown after the results, also one that begins as they do.
    for content in ("I look.", "<|tool_response>"):
        expected = f"[{GEMMA_CALL}]{GEMMA_RESULT}[{content}]"
        assert learned(call | {"content": content}, result, answer) == f"{expected}[It is 18 C.<turn|>\n]"
    thought = {"reasoning_content": "Hm."}
    assert learned(call | thought, result) == f"[<|channel>thought\nHm.\n<channel|>{once[1:]}"


def test_results_of_tools_that_a_call_shows_behind_its_content() -> None:
    source = (
        "{% for m in messages %}{% if m.role != 'tool' %}{{ m.role }}:{{ m.content }}{% if m.tool_calls %}"
        "<{{ m.tool_calls[0].function.name }}>({{ messages[loop.index].content }}){% endif %};{% endif %}{% endfor %}"
    )
    chat = {"messages": [ASK, assistant("(a", tool_calls=CALLS), RESULT, assistant("b")]}
    assert marked(chat, source)[0].endswith("[assistant:(a<get_weather>(]18 C);[assistant:b;]")


def test_tools_as_json_text() -> None:
    """Also each of a list, and those of OpenAI's preferences."""
    (expected,) = marked(weather(CALLS), published("qwen3"))
    for tools in (json.dumps([TOOL]), [json.dumps(TOOL)]):
        assert marked(weather(CALLS) | {"tools": tools}, published("qwen3")) == [expected]
    sides = {"preferred_output": [assistant("b")], "non_preferred_output": [assistant("c")]}
    texts = [
        marked({"input": {"messages": [ASK], "tools": tools}} | sides, published("qwen3"))
        for tools in ([TOOL], json.dumps([TOOL]), [json.dumps(TOOL)])
    ]
    assert texts[0] == texts[1] == texts[2] and "get_weather" in texts[0][0]


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "hermes", "llama-3.1"])
@pytest.mark.parametrize("arguments", [{}, "{}"])
def test_calls_without_arguments(name: str, arguments: Any) -> None:
    (text,) = marked(weather([{"function": {"name": "get_weather", "arguments": arguments}}]), published(name))
    assert '": {}}' in text and '"{}"' not in text


@pytest.mark.parametrize(
    ("name", "row", "text"),
    [
        (
            "qwen3",
            {"messages": [user("Peru?"), assistant("Lima"), user("Cuba?"), assistant("Havana")]},
            "<|im_start|>user\nPeru?<|im_end|>\n<|im_start|>assistant\n[Lima<|im_end|>\n]<|im_start|>user\nCuba?"
            "<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nHavana<|im_end|>\n]",
        ),
        (
            "qwen3",
            {
                "messages": [
                    *(user("2+2?"), assistant("<think>\nTwo.\n</think>\n\n4")),
                    *(user("3+3?"), assistant("<think>\nThree.\n</think>\n\n6")),
                ]
            },
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n[4<|im_end|>\n]<|im_start|>user\n3+3?<|im_end|>\n"
            "<|im_start|>assistant\n[<think>\nThree.\n</think>\n\n6<|im_end|>\n]",
        ),
        (
            "qwen3",
            {"messages": [user("2+2?"), assistant("4", reasoning_content="Two and two.")]},
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
            "[<think>\nTwo and two.\n</think>\n\n4<|im_end|>\n]",
        ),
        (
            "qwen3",
            {"messages": [user("2+2?"), assistant("4")], "chat_template_kwargs": {"enable_thinking": False}},
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[4<|im_end|>\n]",
        ),
        (
            "r1-distill",
            {"messages": [user("2+2?"), assistant("<think>\nTwo.\n</think>\n\n4")]},
            "<s><｜User｜>2+2?<｜Assistant｜>[\n\n4<｜end▁of▁sentence｜>]",
        ),
        (  # a word that begins as the thought does which the prompt opens
            "r1-distill",
            {"messages": [user("1?"), assistant("<thanks>"), user("2?"), assistant("")]},
            "<s><｜User｜>1?<｜Assistant｜>[<thanks><｜end▁of▁sentence｜>]<｜User｜>2?<｜Assistant｜>[<｜end▁of▁sentence｜>]",
        ),
        (
            "chatml",
            {"messages": [assistant("Hello"), user("Peru?"), assistant("Lima")]},
            "<|im_start|>system\nHi.<|im_end|>\n<|im_start|>assistant\n[Hello<|im_end|>\n]<|im_start|>"
            "user\nPeru?<|im_end|>\n<|im_start|>assistant\n[Lima<|im_end|>\n]",
        ),
        (
            "gemma-3",
            {"messages": [user([{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]), assistant("c")]},
            "<s><start_of_turn>user\nab<end_of_turn>\n<start_of_turn>model\n[c<end_of_turn>\n]",
        ),
        (
            "qwen3",
            {"messages": [user([{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]), assistant("c")]},
            "<|im_start|>user\n a b<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nc<|im_end|>\n]",
        ),
        (  # shows parts alone; its prompt ends before the space
            "smolvlm",
            {"messages": [user("a"), assistant("b"), user([{"type": "text", "text": "c"}]), assistant("")]},
            "<|im_start|>User: a<end_of_utterance>\nAssistant:[ b<end_of_utterance>\n]User: c<end_of_utterance>\n"
            "Assistant:[ <end_of_utterance>\n]",
        ),
        (
            "llama-3.2",
            {"messages": [user("a"), assistant("b")], "chat_template_kwargs": {"date_string": "25 Nov 2026"}},
            "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: "
            "25 Nov 2026\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|><|start_header_id|>"
            "assistant<|end_header_id|>\n\n[b<|eot_id|>]",
        ),
    ],
)
def test_what_is_learned(name: str, row: dict[str, Any], text: str) -> None:
    assert marked(row, published(name)) == [text]


NOT_USED = "; remove it from the row, or export the model with a template"


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("chatml", weather(CALLS, content=""), 'message 2: "tool_calls" are not used by the model\'s chat template'),
        ("chatml", {"tools": [TOOL], "messages": [ASK, assistant("x")]}, '"tools" are not used by the model'),
        ("gemma-3", {"tools": [TOOL], "messages": [ASK, assistant("x")]}, '"tools" are not used by the model'),
        (
            "qwen2.5",
            {"messages": [ASK, assistant("x", reasoning_content="y")]},
            'message 2: "reasoning_content" is not used by the model',
        ),
        (
            "qwen3",
            {"messages": [ASK, assistant("x", thinking="y")]},
            'message 2: "thinking" is not used by the model',
        ),
        (
            "qwen3",
            {"messages": [ASK, assistant("", function_call=CALL)]},
            'message 2: "function_call" is not used by the model',
        ),
        (
            "qwen3",
            {"messages": [ASK, {"role": "critic", "content": "Hm."}, assistant("x")]},
            'message 2: the model\'s chat template does not show messages with the role "critic"',
        ),
        (
            "qwen3",
            {"messages": [user([{"type": "image", "image": "x.png"}]), assistant("x")]},
            'message 1: "content" has a part that is not text but "image"',
        ),
        (
            "qwen3",
            {"messages": [ASK, assistant("x")], "chat_template_kwargs": {"enable_thoughts": True}},
            "the model's chat template has no variable enable_thoughts",
        ),
        (
            "qwen3",
            {"messages": [ASK, assistant("x")], "chat_template_kwargs": {"messages": []}},
            "messages cannot be set",
        ),
        ("gemma-3", {"messages": [ASK, ASK, assistant("x")]}, "the model's chat template rejects these messages: Conv"),
        (
            "qwen3",
            {"messages": [ASK, assistant("", tool_calls=[{"x": 1}])]},
            'message 2: "tool_calls" must be a list',
        ),
    ],
)
def test_nothing_is_dropped_without_a_word(name: str, row: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeFailure, match=f"^{message}"):
        marked(row, published(name))


def test_each_call_and_the_content_beside_it_must_be_shown() -> None:
    chat = weather(CALLS)["messages"]
    beside = [*chat, ASK, assistant("I look.", tool_calls=CALLS), RESULT, assistant("x")]
    with pytest.raises(RuntimeFailure, match='^message 6: "content" beside "tool_calls" is not used by'):
        marked({"messages": beside}, published("llama-3.1"))
    beside[5]["content"] = " \n"
    assert marked({"messages": beside}, published("llama-3.1"))
    first_of_two = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.tool_calls and loop.index0 < 4 %}"
        "{{ m.tool_calls[0].function.name }}{% endif %};{% endfor %}"
    )
    two = [ASK, assistant("", tool_calls=[*CALLS, {"function": CALL | {"name": "other"}}])]
    with pytest.raises(RuntimeFailure, match='^message 2: call 2 of "tool_calls" is not used by the model'):
        marked({"messages": two}, first_of_two)
    later = [*chat, ASK, assistant("", tool_calls=CALLS), RESULT, assistant("x")]
    with pytest.raises(RuntimeFailure, match='^message 6: "tool_calls" are not used by the model'):
        marked({"messages": later}, first_of_two)
    for name in ("qwen2.5", "qwen3", "hermes", "gemma-4"):
        assert marked({"messages": [ASK, assistant("I look.", tool_calls=[*CALLS, *CALLS]), RESULT]}, published(name))


def test_where_an_answer_begins_may_be_unclear() -> None:
    """A template that puts all turns together before it shows them, and counts them."""
    source = (
        "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ m.content ~ ';' %}"
        "{% endfor %}{{ messages|length }}{{ ns.text }}"
    )
    with pytest.raises(
        RuntimeFailure, match='cannot determine where the answer of message 2 begins .* has "4a;b;c;d;" where'
    ):
        marked({"messages": [user("a"), assistant("b"), user("c"), assistant("d")]}, source)
    assert marked({"messages": [user("a"), assistant("b")]}, source.replace("{{ messages|length }}", "")) == ["a;[b;]"]


def test_loops_over_numbers_of_messages() -> None:
    source = (
        "{% for i in range(messages|length) %}{% set m = messages[i] %}{{ m.role }}:"
        "{{ m.content if m.role == 'user' or i == messages|length - 1 else '-' }};{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    chat = {"messages": [user("a"), assistant("b"), user("c"), assistant("d")]}
    assert marked(chat, source) == ["user:a;assistant:[-;]user:c;assistant:[d;]"]


OF_PARTS = ("smolvlm",)  # show contents in parts alone
TRAINED = [
    *("qwen2.5", "qwen3", "qwen3-2507", "qwen2.5-vl", "qwen3-vl", "qwen3.5", "qwen3.5-think", "gemma", "gemma-3"),
    *("lfm2", "r1-distill", "llama-3", "phi-3", "phi-3.5", "smolvlm", "nemotron-3-nano"),
]


@pytest.mark.parametrize("name", TRAINED)
def test_marks_of_templates_are_those_of_transformers(name: str) -> None:
    """With the template that TRL trains with, masks are those of its `assistant_only_loss`."""
    source, rng, compared = training(name), random.Random(name), 0
    template = ChatTemplate(source, TOKENS)
    for _ in range(200):
        chat = random_chat(rng)
        try:
            text, answers = template.answers(json.dumps(chat))
        except RuntimeFailure:
            continue
        expected = marked_by_transformers(source, as_parts(chat) if name in OF_PARTS else chat)
        assert (text, [span for span in answers if span[0] < span[1]]) == expected
        compared += 1
    assert compared >= 30


def test_marks_outside_of_the_loop_over_messages() -> None:
    """One behind the loop is of the message marked last; of marks before all others, it is not known whose they are."""
    chat = {"messages": [user("a"), assistant("b"), user("c"), assistant("d")]}
    mark = "{% generation %}X{% endgeneration %}"
    loop = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}" + mark.replace(
        "X", "{{ m.content }};"
    )
    loop += "{% endif %}{% endfor %}"
    assert marked(chat, loop + mark) == ["a[b;]c[d;][X]"]
    with pytest.raises(RuntimeFailure, match="marks 3 texts as the assistant's, of 2 messages"):
        marked(chat, mark + loop)


@pytest.mark.parametrize("name", ["qwen3", "qwen3-2507", "gemma-3", "lfm2", "llama-3"])
def test_answers_are_found_where_training_templates_mark_them(name: str) -> None:
    rng, compared = random.Random(name), 0
    ours, marks = ChatTemplate(published(name), TOKENS), ChatTemplate(training(name), TOKENS)
    for _ in range(200):
        chat = json.dumps(random_chat(rng, thoughts=False))
        try:
            found, expected = ours.answers(chat), marks.answers(chat)
        except RuntimeFailure:
            continue
        if found[0] == expected[0]:  # training templates show thoughts that others leave out
            assert found == expected
            compared += 1
    assert compared >= 10


@pytest.mark.parametrize("name", [*PUBLISHED, "hermes", "chatml"])
def test_chats_render_as_with_transformers(name: str) -> None:
    source, rng, compared = published(name), random.Random(name), 0
    template = ChatTemplate(source, TOKENS)
    for _ in range(200):
        chat = random_chat(rng)
        try:
            text, answers = template.answers(json.dumps(chat))
        except RuntimeFailure:
            continue
        form = as_parts if name in OF_PARTS else dict
        assert text == with_transformers(source, form(chat))
        turns = sum(message["role"] == "assistant" for message in chat["messages"])
        # Gemma 4 shows results of tools between a call and its content.
        parts = sum("tool_calls" in message and name == "gemma-4" for message in chat["messages"])
        assert turns <= len(answers) <= turns + parts
        for (_, end), (begin, _) in zip(answers, answers[1:], strict=False):
            assert end <= begin
        prompt = json.dumps(chat | {"messages": chat["messages"][:-1]})
        assert template.prompt(prompt) == with_transformers(
            source, form(json.loads(prompt)), add_generation_prompt=True
        )
        compared += 1
    assert compared >= 10


def test_a_row_says_more_than_the_run() -> None:
    chat = {"messages": [user("2+2?")], "chat_template_kwargs": {"enable_thinking": True}}
    template = ChatTemplate(published("qwen3"), TOKENS, kwargs='{"enable_thinking": false}')
    assert template.prompt(json.dumps(chat)).endswith("<|im_start|>assistant\n")
    del chat["chat_template_kwargs"]
    assert template.prompt(json.dumps(chat)).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    with pytest.raises(
        RuntimeFailure, match='chat_template_kwargs {"x": 1}: the model\'s chat template has no variable x'
    ):
        ChatTemplate(CHATML, TOKENS, kwargs='{"x": 1}')
    with pytest.raises(RuntimeFailure, match="chat_template_kwargs 1: must be a JSON object"):
        ChatTemplate(CHATML, TOKENS, kwargs="1")
