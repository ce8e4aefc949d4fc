"""A chat template as a table of texts, for devices, which have no Jinja.

Most templates put fixed texts around what messages say: which, depends on the roles before and behind, on whether the
message is the first or the last one, and on whether a user's is still to come. `compile_chat` learns these texts from
what the template makes of all short dialogues, and then checks the table on random ones.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from jinja2 import nodes

from mobile_ft.chat_template import Message, parse_template

Render = Callable[[list[Message], bool], str]  # of messages, with or without the prompt for an answer

_ROLES = ("system", "user", "assistant")
_SPACES = " \n\t\r\u00a0\u3000"
_LONGEST, _LONGEST_TO_AND_FRO = 4, 7  # dialogues that are learned from
_DIALOGUES = 1000  # that the table is checked on
_ASKING = (
    *("startswith", "endswith", "split", "rsplit", "partition", "rpartition", "find", "index", "count", "replace"),
    *("removeprefix", "removesuffix"),
)
_CONTENTS = (
    "Hello!",
    "x",
    "",
    " \n",
    "two words",
    "\n\nspaced\t",
    " über \u00a0",
    "a\nb\n\nc",
    "1 < 2 & '3'",
    "東京 🙂",
    "{{ x }}",
)


@dataclass(frozen=True)
class ChatTable:
    """What stands between messages, by `gap_key`. What is taken off their ends, by `turn`: all whitespace ("space")
    or the characters that are listed."""

    gaps: dict[str, str]
    stripped: dict[str, tuple[str, str]]
    refused: tuple[str, ...]  # texts that the template looks for in messages

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def render(self, messages: list[Message], add_generation_prompt: bool = False) -> str:
        """As the template renders them. Raises ValueError where the device would refuse them."""
        if not any(message["role"] == "user" for message in messages):
            raise ValueError("no message is a user's")
        text = ""
        for i, message in enumerate([*messages, None]):
            key = gap_key(messages, i, add_generation_prompt)
            ends = self.stripped.get(turn(messages, i)) if message is not None else ("", "")
            if key not in self.gaps or ends is None:
                raise ValueError(f"the model's chat template has no {_in_words(messages, i)}")
            text += self.gaps[key]
            if message is not None:
                text += self._shown(message["content"], *ends)
        return text

    def _shown(self, content: str, left: str, right: str) -> str:
        for looked_for in self.refused:
            if looked_for in content:
                raise ValueError(f"the model's chat template treats {looked_for!r} in a message apart")
        content = content.lstrip(None if left == "space" else left) if left else content
        return content.rstrip(None if right == "space" else right) if right else content


def turn(messages: list[Message], i: int) -> str:
    """The role of message `i`, "first " before that of the first one; with "." of the last one and "+" of others that
    no user's message comes behind."""
    behind = messages[i + 1 :]
    later = any(message["role"] == "user" for message in behind)
    return ("first " if i == 0 else "") + messages[i]["role"] + ("" if later else "+" if behind else ".")


def gap_key(messages: list[Message], i: int, add_generation_prompt: bool) -> str:
    """Of what stands before message `i`, or behind the last one: the turns around it."""
    before = turn(messages, i - 1) if i > 0 else ""
    behind = turn(messages, i) if i < len(messages) else "prompt" if add_generation_prompt else "end"
    return f"{before}|{behind}"


def compile_chat(render: Render, source: str) -> ChatTable:
    """The table of the template `source`, which `render` renders. Raises ValueError that says why there can be none."""
    refused = tuple(sorted(set(_looked_for(source))))
    table = ChatTable(_learn(render), _stripped(render), refused)
    _check(table, render)
    return table


def _looked_for(source: str) -> Iterator[str]:
    """Texts that the template looks for: `"</think>" in message.content`, `.split("</think>")` and the like."""
    tree = parse_template(source)
    found: list[nodes.Node] = []
    for compare in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compare.ops):
            found.append(compare.expr)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in _ASKING:
            found += call.args[:1]
    for filtered in tree.find_all(nodes.Filter):
        if filtered.name in _ASKING:
            found += filtered.args[:1]
    yield from (text.value for text in found if isinstance(text, nodes.Const) and isinstance(text.value, str))


def _learn(render: Render) -> dict[str, str]:
    gaps: dict[str, str] = {}
    for roles, prompt in product(_dialogues(), (False, True)):
        messages = [{"role": role, "content": f"\ue000{i}\ue001"} for i, role in enumerate(roles)]
        try:
            parts = re.split("\ue000(.)\ue001", render(messages, prompt))
        except ValueError:
            continue
        if parts[1::2] != [str(i) for i in range(len(roles))]:
            continue  # messages left out or moved: not for the device
        for i, gap in enumerate(parts[::2]):
            key = gap_key(messages, i, prompt)
            if gaps.setdefault(key, gap) != gap:
                raise ValueError(f"what it puts between messages is not always the same ({key})")
    if not gaps:
        raise ValueError("it shows no dialogue as it is")
    return gaps


def _dialogues() -> Iterator[tuple[str, ...]]:
    """The roles of all short ones that hold a user's message, and of longer ones that go to and fro."""
    for count in range(1, _LONGEST + 1):
        yield from (roles for roles in product(_ROLES, repeat=count) if "user" in roles)
    for count in range(_LONGEST, _LONGEST_TO_AND_FRO + 1):
        turns = tuple(_ROLES[1 + i % 2] for i in range(count))
        yield from (turns, (_ROLES[0], *turns))


def _stripped(render: Render) -> dict[str, tuple[str, str]]:
    """What is taken off the beginning and the end of messages, each found out in the first dialogue that has such."""
    found: dict[str, tuple[str, str]] = {}
    for roles in _dialogues():
        messages = [{"role": role, "content": "y"} for role in roles]
        for i in range(len(roles)):
            key = turn(messages, i)
            if key not in found and (ends := _ends(render, messages, i)) is not None:
                found[key] = ends
    return found


def _ends(render: Render, messages: list[Message], i: int) -> tuple[str, str] | None:
    def shown(content: str) -> str:
        return render([*messages[:i], {"role": messages[i]["role"], "content": content}, *messages[i + 1 :]], False)

    try:
        plain = shown("\ue000")
        left = "".join(space for space in _SPACES if shown(space + "\ue000") == plain)
        right = "".join(space for space in _SPACES if shown("\ue000" + space) == plain)
    except ValueError:
        return None
    if "\ue000" not in plain:
        return None
    return "space" if left == _SPACES else left, "space" if right == _SPACES else right


def _check(table: ChatTable, render: Render) -> None:
    """On random dialogues. It may refuse what the template takes only where they do not go to and fro."""
    rng = random.Random(0)
    for _ in range(_DIALOGUES):
        messages = random_dialogue(rng)
        prompt = rng.random() < 0.5
        try:
            expected: str | None = render(messages, prompt)
        except ValueError:
            expected = None
        try:
            found: str | None = table.render(messages, prompt)
        except ValueError:
            found = None
        refuses = found is None and not _to_and_fro(messages)
        if found != expected and not refuses:
            roles = ", ".join(message["role"] for message in messages)
            raise ValueError(f"no table of texts makes what it makes of messages of {roles}")


def _to_and_fro(messages: list[Message]) -> bool:
    """User and assistant in turn, behind a system message or none."""
    roles = [message["role"] for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    return bool(turns) and all(role == _ROLES[1 + i % 2] for i, role in enumerate(turns))


def random_dialogue(rng: random.Random) -> list[Message]:
    roles = ["system"] if rng.random() < 0.3 else []
    for i in range(rng.randrange(1, 8)):
        roles.append(rng.choice(_ROLES) if rng.random() < 0.1 else _ROLES[1 + i % 2])
    return [{"role": role, "content": rng.choice(_CONTENTS)} for role in roles]


def _in_words(messages: list[Message], i: int) -> str:
    before = messages[i - 1]["role"] if i > 0 else "the beginning"
    behind = messages[i]["role"] if i < len(messages) else "the end"
    return f"{behind} behind {before} there"
