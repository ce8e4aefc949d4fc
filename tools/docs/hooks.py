"""MkDocs hooks: fill pages with generated content, and convert links that work in the repository."""

import re
from pathlib import Path
from typing import Any

import c_api
import command_line
import java
import links
import results
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
GENERATED = {
    "commands": command_line.commands,
    "step options": lambda: command_line.training_options("step"),
    "run options": lambda: command_line.training_options("run"),
    "data options": command_line.data_options,
    "learning options": command_line.learning_options,
    "generation options": command_line.generation_options,
    "C API": c_api.reference,
    "Java SDK": java.reference,
    "result fields": results.reference,
}
# Words that would break after a hyphen.
_HYPHENATED = re.compile(r"(?<!\S)(?=\S*-)\S{1,30}(?!\S)")
_CODE_IN_TABLE = re.compile(r"^ *\|.*`.*$", re.MULTILINE)
_WORD = r'<span class="word">\g<0></span>'


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the repository that are not in docs/."""
    for path, uri in links.OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    def fill(match: re.Match[str]) -> str:
        return GENERATED[match[1]]()

    filled = re.sub(r"^<!-- generated: (.*) -->$", fill, markdown, flags=re.MULTILINE)
    return links.for_site(_CODE_IN_TABLE.sub(_bars, filled), page.file.src_uri)


def _bars(row: re.Match[str]) -> str:
    r"""Replaces \| in code within tables, which GitHub requires, by |, which MkDocs requires."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Keeps words of code together, and links pages that comments and docstrings name by path."""

    def link(match: re.Match[str]) -> str:
        file = files.get_file_from_path(match[1])
        return f'<a href="{file.url_relative_to(page.file)}">{match[0]}</a>' if file else match[0]

    html = re.sub(r"<code>([^<]*)</code>", lambda code: f"<code>{_HYPHENATED.sub(_WORD, code[1])}</code>", html)
    if not page.file.src_uri.startswith("reference/"):
        return html
    return re.sub(r"(?<![\w/>])docs/([\w/-]+\.md)(?![\w<])", link, html)
