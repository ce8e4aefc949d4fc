"""Generates the reference of the C API from its header."""

import re
from pathlib import Path

HEADER = Path(__file__).parents[2] / "runtime/c_api/mobile_ft.h"

_WIDTH = 92
_SECTION = re.compile(r"^/\* ---- (.*) ---- \*/$", re.MULTILINE)


def reference() -> str:
    """Returns a section for each section of the header, with its declarations and their comments."""
    text = HEADER.read_text(encoding="utf-8")
    head, *sections = _SECTION.split(text)
    lines = [_prose(_comment(head)), "", "## Status", "", *_items(head[head.index("typedef enum") :])]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        lines += [f"## {title}", "", *_items(body.split("#ifdef __cplusplus")[0])]
    return "\n".join(lines)


def _items(body: str) -> list[str]:
    """Returns each comment with its declarations, under the declared names."""
    lines, comment = [], ""
    for part in re.split(r"(^/\*.*?\*/\n+|\n\n)", body, flags=re.MULTILINE | re.DOTALL):
        if part.startswith("/*"):
            comment = f"{comment}\n\n{_comment(part)}".strip()
        elif part.strip():
            code = part.strip().replace("MFT_API ", "")
            names = ", ".join(f"`{name}`" for name in _declared(code))
            lines += [f"### {names}", "", *([_prose(comment), ""] if comment else []), "```c", _narrow(code), "```", ""]
            comment = ""
    return lines


def _narrow(code: str) -> str:
    """Formats declarations to fit beside the navigation: one parameter per line, and comments above their
    declarations."""
    lines = []
    for line in re.sub(r",\n {10,}", ", ", code).splitlines():
        member = re.fullmatch(r"( +)(\S.*?) +(/\*.*\*/)", line)
        function = re.fullmatch(r"(\S.*\()(.*)\);", line)
        if len(line) <= _WIDTH:
            lines.append(line)
        elif member:
            lines += [member[1] + member[3], member[1] + member[2]]
        elif function:
            lines += [function[1], ",\n".join(f"    {parameter}" for parameter in function[2].split(", ")) + ");"]
        else:
            lines.append(line)
    return "\n".join(lines)


def _declared(code: str) -> list[str]:
    """Returns the names of declared functions and types."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
    functions = re.findall(r"\b(mft_\w+)\(", code)
    types = re.findall(r"^(?:typedef struct mft_\w+|}) (mft_\w+);", code, re.MULTILINE)
    callbacks = re.findall(r"\(\*(mft_\w+)\)", code)
    return list(dict.fromkeys([*types, *callbacks, *functions]))


def _comment(text: str) -> str:
    """Returns the first comment, without its stars."""
    found = re.search(r"/\*(.*?)\*/", text, re.DOTALL)
    assert found is not None
    return "\n".join(re.sub(r"^ \* ?", "", line) for line in found[1].splitlines()).strip()


def _prose(comment: str) -> str:
    """Converts a comment to Markdown. Indented paragraphs are examples."""
    paragraphs = []
    for paragraph in comment.split("\n\n"):
        if paragraph.startswith("  "):
            lines = [line.removeprefix("  ") for line in paragraph.splitlines()]
            paragraphs.append("\n".join(["```c", *lines, "```"]))
        else:
            text = re.sub(r"^(Errors|Ownership|Threads|Units): (\w)", _begin, paragraph)
            paragraphs.append(re.sub(r"\b(mft_\w+\(\)|MFT_\w+)", r"`\1`", text))
    return "\n\n".join(paragraphs)


def _begin(match: re.Match[str]) -> str:
    return f"**{match[1]}.** {match[2].upper()}"
