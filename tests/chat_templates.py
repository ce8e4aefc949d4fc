"""Chat templates of published models, random dialogues for them, and what Jinja and Transformers make of both."""

import json
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest

_TRL = Path(pytest.importorskip("trl").__file__).parent / "chat_templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

# Of the supported families, as TRL carries them.
PUBLISHED = {
    "qwen2.5": "qwen2_5",
    "qwen3": "qwen3",
    "qwen3-2507": "qwen3_instruct_2507",
    "llama-3": "llama3",
    "llama-3.1": "llama3_1",
    "llama-3.2": "llama3_2",
    "gemma-3": "gemma3",
    "lfm2": "lfm2_v2",
    "lfm2.5": "lfm2_2_5_v2",
    "lfm2-vl": "lfm2_2_5_vl",
    "gemma": "gemma",
    "gemma-4": "gemma4_v5",
    "phi-3": "phi3",
    "phi-3.5": "phi3_5",
    "qwen2.5-vl": "qwen2_5_vl",
    "qwen3-vl": "qwen3_vl",
    "qwen3.5": "qwen3_5_nothink",
    "qwen3.5-think": "qwen3_5_think",
    "smolvlm": "smolvlm",
    "nemotron-3-nano": "nemotron_3_nano",
    "r1-distill": "deepseek_r1_distill",
}
# Hermes' form of tool calls on ChatML, as Qwen has it too; plain ChatML that shows content alone, as SmolLM2's.
HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n"
    "{% endif %}You may call functions.\n<tools>\n{% for tool in tools %}{{ tool.function | tojson }}\n{% endfor %}"
    "</tools>{{ '<|im_end|>\n' }}{% endif %}{% for message in messages %}"
    "{% if not (tools and loop.first and message.role == 'system') %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'tool' %}<tool_response>\n{{ message.content }}\n</tool_response>"
    "{% else %}{{ message.content }}{% for call in message.tool_calls %}{{ '\n' if message.content or not loop.first }}"
    '<tool_call>\n{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nHi.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def published(name: str) -> str:
    return {"hermes": HERMES, "chatml": CHATML}.get(name) or (_TRL / f"{PUBLISHED[name]}.jinja").read_text()


def training(name: str) -> str:
    """TRL's own variant, with marks of what the assistant says."""
    return (_TRL / f"{PUBLISHED[name]}_training.jinja").read_text()


def of_llama_cpp() -> dict[str, str]:
    """Those that llama.cpp's source archive carries, by the names of its files; it is downloaded once."""
    folder = Path(__file__).parents[1] / "build" / "llama.cpp-templates"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
            command = [*download, "--no-binary", ":all:", "-d", scratch, "llama-cpp-python==0.3.36"]
            subprocess.run(command, check=True)
            (archive,) = Path(scratch).glob("*.tar.gz")
            made = folder.with_suffix(".part")
            made.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive) as files:
                for member in files:
                    name = Path(member.name)
                    if name.suffix == ".jinja" and name.parent.name == "templates":
                        file = files.extractfile(member)
                        assert file is not None
                        made.joinpath(name.name).write_bytes(file.read())
            made.rename(folder)
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.jinja"))}


def all_of_trl() -> list[Path]:
    return sorted(_TRL.glob("*.jinja"))


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["city"],
        },
    },
}
_TEXTS = (
    "Hi",
    "  spaces \n",
    "<think>\nhm\n</think>\n\nYes",
    "ü 漢字 😀",
    "",
    "a 'q' \"x\" <b> & {c} {{ d }}",
    "<|im_end|> x",
    "line\nline2\n\n",
    "1.5",
    "</think>x",
)


def random_chat(rng: random.Random, tools: bool = True, thoughts: bool = True, system: bool = True) -> dict[str, Any]:
    """{"messages", "tools"} of some turns, with calls of a tool, several in a row, and thoughts where wanted."""

    def text() -> str:
        return rng.choice(_TEXTS) + (rng.choice(_TEXTS) if rng.random() < 0.3 else "")

    messages: list[dict[str, Any]] = []
    with_tools = tools and rng.random() < 0.5
    if system and rng.random() < 0.4:
        messages.append({"role": "system", "content": text() + "."})
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": text() + "?"})
        if with_tools and rng.random() < 0.7:
            arguments = {"city": text(), "n": rng.choice([1, 2.5, None, True, [1, "x"], {"k": "v"}])}
            call: dict[str, Any] = {"id": f"call{rng.randint(0, 99999):05}", "type": "function"}
            call["function"] = {"name": "get_weather", "arguments": arguments}
            messages.append({"role": "assistant", "content": rng.choice(["", text()]), "tool_calls": [call]})
            if thoughts and rng.random() < 0.3:
                messages[-1]["reasoning_content"] = text() + "."
            answer = {"role": "tool", "tool_call_id": call["id"], "name": "get_weather", "content": text() + "!"}
            messages.append(answer)
        messages.append({"role": "assistant", "content": text()})
        if thoughts and rng.random() < 0.3:
            messages[-1]["reasoning_content"] = text() + "."
    return {"messages": messages, "tools": [TOOL] if with_tools else None}


def as_parts(chat: dict[str, Any]) -> dict[str, Any]:
    """The chat with parts of text instead of texts, which templates such as SmolVLM's take alone."""
    messages = [
        message | {"content": [{"type": "text", "text": message["content"]}]} if "content" in message else message
        for message in chat["messages"]
    ]
    return chat | {"messages": messages}


def with_transformers(source: str, chat: dict[str, Any], add_generation_prompt: bool = False) -> str:
    """Raises what Jinja raises."""
    from transformers.utils.chat_template_utils import render_jinja_template

    values: dict[str, Any] = {"documents": None, "add_generation_prompt": add_generation_prompt, **TOKENS}
    text: str = render_jinja_template([chat["messages"]], chat_template=source, tools=chat.get("tools"), **values)[0][0]
    return text


def marked_by_transformers(source: str, chat: dict[str, Any]) -> tuple[str, list[tuple[int, int]]]:
    """Text, and the characters [begin, end) between {% generation %} and {% endgeneration %}."""
    from transformers.utils.chat_template_utils import render_jinja_template

    values: dict[str, Any] = {"documents": None, "return_assistant_tokens_mask": True, **TOKENS}
    rendered: Any = render_jinja_template([chat["messages"]], chat_template=source, tools=chat.get("tools"), **values)
    texts, marks = rendered
    return texts[0], [(begin, end) for begin, end in marks[0]]


def to_json(chat: dict[str, Any]) -> str:
    return json.dumps(chat)
