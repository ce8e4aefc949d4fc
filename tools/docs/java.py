"""Generates the reference of the Java SDK from its sources."""

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "android_demo/sdk/src/main/java/ai/mobileft"

_TYPE = re.compile(
    r"(?P<doc>/\*\*(?:(?!\*/).)*\*/)?\s*^public (?P<head>[^{]*?(?:class|interface) (?P<name>\w+)[^{]*)\{", re.M | re.S
)
_MEMBER = re.compile(
    r"(?P<doc>^  /\*\*(?:(?!\*/).)*\*/\n)?(?:  @\w+\n)*^  (?P<head>public [^={;]*|[\w<>]+ \w+\([^)]*\))(?:\{|;|=)",
    re.M | re.S,
)


def reference() -> str:
    """Returns a section per class, with its public methods."""
    sections = []
    for file in sorted(SOURCES.glob("*.java")):
        text = file.read_text(encoding="utf-8")
        found = _TYPE.search(text)
        if found is None:
            continue  # package-private
        sections.append(_section(found, text[found.end() :]))
    return "\n".join(sections)


def _section(found: re.Match[str], body: str) -> str:
    head = " ".join(found["head"].split())
    lines = [f"## {found['name']}", "", "```java", f"public {head}", "```", "", _doc(found["doc"]), ""]
    members = []
    for member in _MEMBER.finditer(body):
        signature = " ".join(member["head"].split()).removeprefix("public ").replace("( ", "(")
        if signature in ("void close()", "String toString()") or (" interface " in f" {head} ") != (
            not member["head"].startswith("public")
        ):
            continue
        members.append(f"| `{signature}` | {_doc(member['doc']).replace(chr(10), ' ').replace('|', chr(92) + '|')} |")
    if members:
        lines += ['<div class="members" markdown>', "", "| member | meaning |", "|---|---|", *members, "", "</div>", ""]
    return "\n".join(lines)


def _doc(comment: str | None) -> str:
    """Converts Javadoc to Markdown."""
    if comment is None:
        return ""
    text = re.sub(r"^\s*(/\*\*|\*/|\*) ?|\*/\s*$", "", comment.strip(), flags=re.MULTILINE).strip()
    text = re.sub(r"\{@(?:link|code) #?((?:[^{}]|\{[^{}]*\})*)\}", r"`\1`", text.replace("\n", " "))
    text = re.sub(r"\s+", " ", text).replace("<p>", "\n\n")
    text = re.sub(r" ?@param (\w+) ", r"<br>`\1`: ", text)
    text = re.sub(r" ?@throws (\w+) ", r"<br>Throws `\1` ", text)
    text = re.sub(r" ?@return ", "<br>Returns ", text)
    return text.strip().removeprefix("<br>")
