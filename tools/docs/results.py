"""Generates the reference of the Python results' fields from their comments."""

import ast
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "mobile_ft/api/results.py"


def reference() -> str:
    """Returns a section per dataclass."""
    text = SOURCE.read_text(encoding="utf-8")
    with tokenize.open(SOURCE) as file:
        tokens = tokenize.generate_tokens(file.readline)
        comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    lines = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.decorator_list:
            lines += [f"### {node.name}", "", " ".join(str(ast.get_docstring(node)).split()), ""]
            lines += ["| field | type | meaning |", "|---|---|---|"]
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    kind = ast.unparse(field.annotation).replace("|", "\\|")
                    said = comments.get(field.lineno) or _above(comments, field.lineno)
                    lines.append(f"| `{field.target.id}` | `{kind}` | {said} |")
            lines.append("")
    return "\n".join(lines)


def _above(comments: dict[int, str], line: int) -> str:
    """Returns the comment in the lines above."""
    said: list[str] = []
    while (line := line - 1) in comments and not _beside(line):
        said.insert(0, comments[line])
    return " ".join(said)


def _beside(line: int) -> bool:
    return not SOURCE.read_text(encoding="utf-8").splitlines()[line - 1].lstrip().startswith("#")
