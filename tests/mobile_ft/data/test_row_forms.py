"""Every form of row that people have: what its text is, what of it is learned, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from mobile_ft.runtime import ChatTemplate, DataConfig, RowReader, RowText, RuntimeFailure, data_options
from tests.chat_templates import TOKENS, TOOL

# A template that shows roles and contents, and nothing else.
PLAIN = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def read(row: Any, template: str | None = PLAIN, **config: str) -> RowText:
    chat_template = None if template is None else ChatTemplate(template, TOKENS, date="2026-11-25")
    return RowReader(chat_template, DataConfig(**config)).read(row if isinstance(row, str) else json.dumps(row))


def marked(row: Any, template: str | None = PLAIN, **config: str) -> list[str]:
    """The text of each side, with what is learned in brackets."""
    sides = []
    for text, spans, _ in read(row, template, **config).sides:
        for begin, end in reversed(spans):
            text = f"{text[:begin]}[{text[begin:end]}]{text[end:]}"
        sides.append(text)
    return sides


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | more


ASKED = "user:Capital of Peru?;assistant:"
QUESTION = user("Capital of Peru?")
LIMA = "user:Capital of Peru?;assistant:[Lima;]"


@pytest.mark.parametrize(
    ("row", "form", "text"),
    [
        ({"messages": [QUESTION, assistant("Lima")], "id": 1}, "chat messages", LIMA),
        ({"messages": [QUESTION | {"name": None}, assistant("Lima", tool_calls=None)]}, "chat messages", LIMA),
        (
            {"messages": [assistant("Hello"), QUESTION, assistant("Lima")]},
            "chat messages",
            "assistant:[Hello;]" + LIMA,
        ),
        (
            {"messages": [QUESTION, assistant("Cusco", weight=0), user("Sure?"), assistant("Lima", weight=1)]},
            "chat messages",
            ASKED + "Cusco;user:Sure?;assistant:[Lima;]",
        ),
        (
            {"messages": [QUESTION, assistant("Cusco", train=False), user("Sure?"), assistant("Lima", train=True)]},
            "chat messages",
            ASKED + "Cusco;user:Sure?;assistant:[Lima;]",
        ),
        (
            {
                "messages": [user([{"type": "text", "text": "Capital "}, {"type": "text", "text": "of Peru?"}])]
                + [assistant([{"type": "text", "text": "Lima"}])]
            },
            "chat messages",
            LIMA,
        ),
        (
            {"conversations": [{"from": "human", "value": "Capital of Peru?"}, {"from": "gpt", "value": "Lima"}]},
            "ShareGPT conversations",
            LIMA,
        ),
        (
            {"conversations": [QUESTION, assistant("Lima")], "system": "Be brief."},
            "ShareGPT conversations",
            "system:Be brief.;" + LIMA,
        ),
        (
            {"messages": [{"role": "system", "content": "s"}, QUESTION, assistant("Lima")], "system": "s"},
            "chat messages",
            "system:s;" + LIMA,
        ),
        (
            {"instruction": "Capital of", "input": "Peru?", "output": "Lima"},
            "Alpaca instructions",
            LIMA.replace(" Peru", "\nPeru"),
        ),
        *(
            (
                {"instruction": "Capital of", key: "Peru?", answer: "Lima", "system": "s"},
                "Alpaca instructions",
                "system:s;" + LIMA.replace(" Peru", "\nPeru"),
            )
            for key in ("input", "context")
            for answer in ("output", "response")
        ),
        ({"instruction": "Capital of Peru?", "input": "", "output": "Lima"}, "Alpaca instructions", LIMA),
        ({"instruction": "Capital of Peru?", "context": None, "response": "Lima"}, "Alpaca instructions", LIMA),
        (
            {"instruction": "Capital of Peru?", "output": "Lima", "history": [["a", "b"]], "system": "s"},
            "Alpaca instructions",
            "system:s;user:a;assistant:[b;]" + LIMA,
        ),
        (
            {"instruction": "Capital of Peru?", "output": "Lima", "history": [], "system": ""},
            "Alpaca instructions",
            LIMA,
        ),
        (
            {"instruction": "Capital of Peru?", "output": "Lima", "history": [["a", "b"]], "system": ""},
            "Alpaca instructions",
            "user:a;assistant:[b;]" + LIMA,
        ),
        ({"prompt": "Capital of Peru?", "completion": "Lima"}, "prompt and completion", LIMA),
        ({"prompt": "Capital of Peru?", "response": "Lima"}, "prompt and response", LIMA),
        ({"question": "Capital of Peru?", "answer": "Lima"}, "question and answer", LIMA),
        (
            {"question": "Capital of Peru?", "answer": "Lima", "context": "", "system": None},
            "question and answer",
            LIMA,
        ),
        ({"question": "Capital of Peru?", "answer": "Lima", "system": "s"}, "question and answer", "system:s;" + LIMA),
        ({"prompt": [QUESTION], "completion": [assistant("Lima")]}, "prompt and completion", LIMA),
        (
            {"prompt": [QUESTION], "completion": [assistant("Lima")], "system": "s"},
            "prompt and completion",
            "system:s;" + LIMA,
        ),
        (
            {"prompt": [user("a"), assistant("b"), QUESTION], "completion": [assistant("Lima")]},
            "prompt and completion",
            "user:a;assistant:b;" + LIMA,
        ),
        ({"text": "a\u2028b", "source": "extra"}, "text", "[a\u2028b]"),
    ],
)
def test_forms(row: dict[str, Any], form: str, text: str) -> None:
    found = read(row)
    assert (found.form, found.plain, found.weight) == (form, "text" in row, 1)
    assert marked(row) == [text]


def test_pairs_without_a_chat_template() -> None:
    for row in ({"prompt": "a ", "completion": "b"}, {"instruction": "a ", "output": "b"}):
        assert marked(row, None) == ["a [b]"]
        with pytest.raises(RuntimeFailure, match='the model has no chat template; .*, and no "system"'):
            read(row | {"system": "s"}, None)
    with pytest.raises(RuntimeFailure, match="the model has no chat template; use prompt and completion, or text"):
        read({"messages": [user("a"), assistant("b")]}, None)
    with pytest.raises(RuntimeFailure, match='"tools": the model has no chat template'):
        read({"prompt": "a", "completion": "b", "tools": [TOOL]}, None)


def test_columns_with_names_of_their_own() -> None:
    row = {
        "prompt": "no",
        "completion": "no",
        "q": "Capital of Peru?",
        "a": "Lima",
        "chat": [QUESTION, assistant("Lima")],
    }
    assert marked(row, prompt_key="q", completion_key="a") == [LIMA]
    assert marked(row, messages_key="chat") == [LIMA]
    assert marked(row | {"completion": "Lima", "chosen": True}, prompt_key="q") == [LIMA]  # no preference
    more = {"context": "c", "system": "s"}
    assert marked(row | more, prompt_key="q", completion_key="a") == ["system:s;" + LIMA]
    with pytest.raises(RuntimeFailure, match='"x" is missing, but is set as the name of a column'):
        read(row, messages_key="x")
    with pytest.raises(RuntimeFailure, match='"completion" is missing'):
        read({"q": "a"}, prompt_key="q")


CHAT = [user("a"), assistant("b"), user("c")]
BEFORE = "user:a;assistant:b;user:c;assistant:"


@pytest.mark.parametrize(
    ("row", "prompt", "form"),
    [
        ({"prompt": "p", "chosen": "c", "rejected": "r", "messages": None}, "user:p;assistant:", "preferences"),
        ({"prompt": CHAT, "chosen": [assistant("c")], "rejected": [assistant("r")]}, BEFORE, "preferences"),
        # The prompt is what both start with; its text may be there once more.
        (
            {"prompt": "c", "chosen": [*CHAT, assistant("c")], "rejected": [*CHAT, assistant("r")]},
            BEFORE,
            "preferences",
        ),
        (
            {"prompt": "p", "chosen": [assistant("c")], "rejected": [assistant("r")]},
            "user:p;assistant:",
            "preferences",
        ),
        (
            {
                "input": {"messages": CHAT},
                "preferred_output": [assistant("c")],
                "non_preferred_output": [assistant("r")],
            },
            BEFORE,
            "OpenAI preferences",
        ),
    ],
)
def test_preferences(row: dict[str, Any], prompt: str, form: str) -> None:
    assert marked(row | {"weight": 2}) == [f"{prompt}[c;]", f"{prompt}[r;]"]
    assert (read(row | {"weight": 2}).weight, read(row).form) == (2, form)


SIDES = {"chosen": "Lima", "rejected": "Lisbon"}
CHATS = {"chosen": [assistant("Lima")], "rejected": [assistant("Lisbon")]}
ANSWERED = [ASKED + "[Lima;]", ASKED + "[Lisbon;]"]


@pytest.mark.parametrize("sides", [SIDES, CHATS], ids=["texts", "chats"])
def test_preferences_with_questions_of_other_names(sides: dict[str, Any]) -> None:
    asked = "Capital of Peru?"
    for question in ({"question": asked}, {"instruction": asked}, {"instruction": asked, "input": ""}):
        assert marked(question | sides) == ANSWERED
        assert marked(question | sides | {"system": ""}) == ANSWERED
        assert marked(question | sides | {"system": "s"}) == ["system:s;" + side for side in ANSWERED]
    for key in ("input", "context"):
        assert marked({"instruction": "Capital of", key: "Peru?"} | sides) == [
            side.replace(" Peru", "\nPeru") for side in ANSWERED
        ]
    assert marked({"prompt": asked, "system": "s"} | sides) == ["system:s;" + side for side in ANSWERED]
    # A column that is named is the prompt, also beside others.
    assert marked({"prompt": "no", "input": asked} | sides, prompt_key="input") == ANSWERED
    with pytest.raises(RuntimeFailure, match='"x" is missing, but is set as the name of a column'):
        read({"prompt": asked} | sides, prompt_key="x")
    for key, value in {"input": "a", "conversations": CHAT, "messages": CHAT, "history": [["a", "b"]]}.items():
        with pytest.raises(RuntimeFailure, match=f'^"{key}" is not used beside "chosen" and "rejected"; rename it'):
            read({key: value} | sides)
    with pytest.raises(RuntimeFailure, match='^"question" and "instruction" cannot both be the prompt'):
        read({"question": asked, "instruction": "a"} | sides)


def test_system_of_preferences() -> None:
    """Also of chats that begin with their prompt. Columns beside it that repeat the question are ignored."""
    chats: dict[str, Any] = {side: [QUESTION, *answer] for side, answer in CHATS.items()}
    expected = ["system:s;" + side for side in ANSWERED]
    assert marked(chats | {"system": "s", "question": "Capital of Peru?"}) == expected
    system = {"role": "system", "content": "s"}
    assert marked({side: [system, *chat] for side, chat in chats.items()} | {"system": "s"}) == expected
    assert marked({"prompt": [QUESTION], "system": "s"} | CHATS) == expected
    texts = {"chosen": "Q: a A: b", "rejected": "Q: a A: c", "system": "s"}
    assert marked(texts)[0] == "system:s;user:Q: a A:;assistant:[ b;]"
    with pytest.raises(RuntimeFailure, match='^"system" and the system message of "chosen" differ; keep one'):
        read({side: [system, *chat] for side, chat in chats.items()} | {"system": "t"})
    assert marked(chats | {"question": "a", "instruction": ["b"], "system": "s"}) == expected
    for sides in (SIDES, CHATS):
        for key, prompt in (("context", "question"), ("history", "instruction"), ("input", "prompt")):
            with pytest.raises(RuntimeFailure, match=f'^"{key}" is not used beside "{prompt}"; add its text to'):
                read({prompt: "a", key: "b"} | sides)
        assert read({"instruction": "a", "history": [["b", "c"]]} | sides, prompt_key="instruction")


def test_preferences_as_texts_with_what_they_begin_with_as_prompt() -> None:
    row = {"chosen": "Q: Capital of Peru? A: Lima", "rejected": "Q: Capital of Peru? A: Cusco"}
    assert marked(row, None) == ["Q: Capital of Peru? A:[ Lima]", "Q: Capital of Peru? A:[ Cusco]"]
    assert marked({"chosen": "é: ü", "rejected": "é: ö"}, None) == ["é:[ ü]", "é:[ ö]"]
    for chosen, rejected in (("Yes", "Yesterday"), ("Lima", "Lisbon"), ("Yes, it is", "Yes. It is"), ("é", "è")):
        assert marked({"chosen": f"Q A: {chosen}", "rejected": f"Q A: {rejected}"}, None) == [
            f"Q A:[ {chosen}]",
            f"Q A:[ {rejected}]",
        ]
    assert marked({"chosen": "Q\nLima", "rejected": "Q\nLisbon"}, None) == ["Q\n[Lima]", "Q\n[Lisbon]"]
    assert marked({"chosen": "Q A", "rejected": "Q A B"}, None) == ["Q A[]", "Q A[ B]"]
    with pytest.raises(RuntimeFailure, match='^"chosen" and "rejected" have no first word in common'):
        read({"chosen": "Lima", "rejected": "Lisbon"})


def test_masked_turns_stay_out() -> None:
    """Whatever the options learn of the other turns."""
    turns = [QUESTION, assistant("Cusco"), user("Sure?"), assistant("Lima")]
    last = {"messages": [*turns[:3], turns[3] | {"weight": 0}]}
    for row in (last, last | {"messages": [*last["messages"], user("Thanks")]}):
        assert "[" not in marked(row, assistant_turns="last")[0]
    first = {"messages": [QUESTION, turns[1] | {"train": False}, *turns[2:]]}
    begin, end = "user:Capital of Peru?;assistant:", "user:Sure?;assistant:Lima;"
    assert marked(first, mask_prompt="false") == [f"[{begin}]Cusco;[{end}]"]
    assert marked({"messages": turns}, mask_prompt="false") == [f"[{begin}Cusco;{end}]"]
    assert marked(first, assistant_turns="last") == [f"{begin}Cusco;user:Sure?;assistant:[Lima;]"]


def test_weights() -> None:
    for weight, expected in ((2, 2), (0.5, 0.5), (0, 0), (None, 1)):
        assert read({"text": "t", "weight": weight}).weight == expected


def test_of_a_key_that_is_there_twice_the_last_counts_as_in_python() -> None:
    assert marked('{"text": "a", "text": "b"}') == ["[b]"]


TURNS = '"messages": [{"role": "user", "content": "a"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "not JSON; a row must be one JSON object on one line \\(parse error"),
        ("[" * 100_000, "not JSON; .*nested deeper than 64 levels"),
        ('{"text": "a\\ud83d"}', "not JSON; .*surrogate"),
        ("[1]", r'the row is \[1\]; it must be an object with "messages", '),
        ('{"txt": "a", "id": 1}', 'the row has "txt", "id"; it must have "messages", '),
        ("{}", "the row has no keys; it must have"),
        ('{"prompt": "a"}', 'the row has "prompt"; it must have'),
        ('{"prompt": "a", "answer": "b"}', 'the row has "prompt", "answer"; it must have'),
        ('{"text": 3}', '"text" is 3; it must be a string'),
        ('{"text": null, "id": 1}', 'the row has "id"; it must have "messages"'),
        ('{"text": "a", "weight": true}', '"weight" is true; it must be a finite number'),
        ('{"text": "a", "weight": "2"}', '"weight" is "2"; it must be a finite number'),
        ('{"text": "a", "weight": -0.5}', '"weight" is -0.5; it must be a finite number'),
        ('{"text": "a", "weight": NaN}', "not JSON"),
        ('{"text": "a", "weight": 1e39}', r'"weight" is 1e\+39; it must be a finite number'),
        ('{"text": "a", "tools": [{}]}', '"tools" cannot be used with "text"'),
        ('{"prompt": "a", "completion": ["b"]}', r'"completion" is \["b"\]; it must be a string'),
        ('{"question": {"q": 1}, "answer": "b"}', r'"question" is \{"q": 1\}; it must be a string'),
        ('{"messages": []}', '"messages" must be a non-empty list'),
        ('{"messages": {"role": "user"}}', '"messages" must be a non-empty list'),
        ('{"messages": ["hi"]}', 'message 1 must be an object with "role" and "content"'),
        ("{" + TURNS + ', {"role": "assistant"}]}', 'message 2 must be an object with "role" and "content"'),
        ("{" + TURNS + ', {"role": "assistant", "content": null}]}', "message 2 must be an object with"),
        (
            "{" + TURNS + ', {"role": "assistant", "content": 3}]}',
            'message 2: "content" is 3; it must be a string or a list',
        ),
        (
            "{" + TURNS + ', {"role": "assistant", "content": "b", "weight": 0.5}]}',
            'message 2: "weight" is 0.5; it must be 0',
        ),
        (
            "{" + TURNS + ', {"role": "assistant", "content": "b", "train": 1}]}',
            'message 2: "train" is 1; it must be true',
        ),
        ("{" + TURNS + "]}", 'nothing to learn; the row must have a message with the role "assistant"'),
        (
            "{" + TURNS + ', {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}], "label": true}',
            'the last message must have the role "assistant", because "label" says',
        ),
        ('{"prompt": "a", "completion": "b", "label": "False"}', '"label" is "False"; it must be true or false, not a'),
        ("{" + TURNS + ', {"role": "assistant", "content": "b"}], "label": "true"}', '"label" is "true"; it must be'),
        (
            '{"system": "s", "messages": [{"role": "system", "content": "t"}, {"role": "assistant", "content": "a"}]}',
            '"system" and the system message of "messages" differ; keep one',
        ),
        ("{" + TURNS + '], "images": ["x"]}', '"images" is not supported; remove it'),
        ("{" + TURNS + '], "tools": "x"}', '"tools" is a string that is not valid JSON'),
        ("{" + TURNS + '], "tools": [{}, 1]}', 'item 2 of "tools" is 1; it must be an object with a "function"'),
        ("{" + TURNS + '], "tools": ["x"]}', '"tools" is a string that is not valid JSON'),
        (
            '{"input": {"messages": [{"role": "user", "content": "a"}], "tools": "[3]"}, '
            '"preferred_output": [], "non_preferred_output": []}',
            'item 1 of "tools" is 3; it must be an object',
        ),
        ("{" + TURNS + '], "tools": {"a": 1}}', r'"tools" is \{"a": 1\}; it must be a list'),
        (
            '{"conversations": [{"from": "alien", "value": "a"}]}',
            'message 1 of "conversations": unknown role "alien"; known: human',
        ),
        ('{"conversations": [{"from": "human"}]}', 'message 1 of "conversations" must be an object with "from" and'),
        (
            '{"conversations": [{"from": "function_call", "value": "x"}]}',
            "message 1 of .*: a function call must be JSON",
        ),
        (
            '{"question": "a", "answer": "b", "context": "c"}',
            '"context" is not used beside "question"; add its text to "question", or remove it',
        ),
        ('{"prompt": "a", "completion": "b", "input": "c"}', '"input" is not used beside "prompt"; add its'),
        ('{"prompt": "a", "response": "b", "history": [["c", "d"]]}', '"history" is not used beside "prompt"'),
        ('{"instruction": "a", "input": "b", "context": "c", "output": "d"}', 'the row has both "input" and "context"'),
        ('{"chosen": "c", "rejected": "r"}', '"chosen" and "rejected" have no first word in common; add a'),
        ('{"chosen": "c", "rejected": "c"}', '"chosen" and "rejected" are the same'),
        ('{"prompt": "p", "chosen": 1, "rejected": "r"}', '"chosen" is 1; it must be a string'),
        ('{"prompt": "p", "chosen": ' + TURNS[12:] + '], "rejected": "r"}', '"rejected" must be a non-empty list'),
        (
            '{"text": "a", "n": 123456789012345678901234567890}',
            "not JSON; .*integers of more than 63 bits are not supported",
        ),
    ],
)
def test_rows_that_cannot_be_used(line: str, message: str) -> None:
    with pytest.raises(RuntimeFailure, match=f"^{message}") as error:
        read(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"prompt": CHAT, "chosen": [assistant("c")], "rejected": [*CHAT, assistant("r")]},
            '"rejected" starts with the role "user"; it must start with "assistant", because it follows "prompt"',
        ),
        (
            {"chosen": [*CHAT, assistant("c")], "rejected": [*CHAT, assistant("c")]},
            '"chosen" and "rejected" are the same',
        ),
        (
            {"chosen": [*CHAT, assistant("c")], "rejected": CHAT},
            'nothing to learn; the row must have a message with the role "assistant" after message 3',
        ),
        ({"chosen": [user("a"), {}], "rejected": CHAT}, 'message 2 of "chosen" must be an object with "role"'),
        ({"preferred_output": CHAT, "non_preferred_output": CHAT}, '"preferred_output" requires an "input"'),
    ],
)
def test_preferences_that_cannot_be_used(row: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeFailure, match=f"^{message}"):
        read(row)


def test_options_of_data() -> None:
    assert [option.name for option in data_options()][:2] == ["mask_prompt", "assistant_turns"]
    with pytest.raises(RuntimeFailure, match="assistant_turns first: must be one of all, last"):
        DataConfig(assistant_turns="first")


def test_documentation_names_every_form() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "data.md").read_text(encoding="utf-8")
    for key in ("messages", "conversations", "instruction", "completion", "response", "preferred_output", "text"):
        assert f'"{key}"' in page
