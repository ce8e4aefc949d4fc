"""Reads the reports of tools/phone_check.py."""

import re
from pathlib import Path

Sections = dict[str, str]


def sections_of(report: Path) -> Sections:
    _, *sections = re.split(r"^## ", report.read_text(), flags=re.MULTILINE)
    return {text.partition("\n")[0]: text.partition("\n")[2].strip() for text in sections}


def rows(section: str) -> dict[str, list[str]]:
    """Cells of all tables by the first of their line."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {line[0]: line[1:] for line in lines if line[0] != "---"}
