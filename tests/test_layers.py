"""Folders depend on those before them only: the order that docs/architecture.md explains."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

RUNTIME = [
    *("platform", "base", "unicode", "formats", "kernels", "dispatch", "ops"),
    *("bundle", "schedule", "config", "model", "plan", "train", "generate"),
    *("jinja", "tokenizer", "text", "data", "learn", "c_api", "cli", "python", "tests"),
]
PYTHON = [
    *("errors", "runtime", "files", "data", "model", "bundle", "profile", "pytorch"),
    *("export.quantizer", "export.source", "export.program", "export"),
    *("converters", "api", "federated", "studio", "cli"),
]


def test_the_runtime() -> None:
    sources = [path for end in ("h", "cpp", "c") for path in (ROOT / "runtime").rglob(f"*.{end}")]
    used = {(folder, other, path) for path in sources for folder, other in _includes(path)}
    assert {folder for folder, _, _ in used} == set(RUNTIME) - {"platform", "unicode"}
    assert _wrong(used, RUNTIME) == []


def test_only_the_platform_knows_the_system() -> None:
    """What is of Linux or of Darwin alone is behind the headers of runtime/platform/."""
    of_one_system = r"__linux__|__APPLE__|\"/(proc|sys)/|<(sched|mach/\w+|sys/(prctl|auxv|syscall|sysctl|event))\.h>"
    sources = [path for end in ("h", "cpp", "c") for path in (ROOT / "runtime").rglob(f"*.{end}")]
    folders = {
        path.relative_to(ROOT / "runtime").parts[0] for path in sources if re.search(of_one_system, path.read_text())
    }
    assert folders == {"platform", "tests"}


def test_python() -> None:
    sources = [path for folder in ("mobile_ft", "export", "runtime") for path in (ROOT / folder).rglob("*.py")]
    used = {(folder, other, path) for path in sources for folder, other in _imports(path)}
    assert {folder for folder, _, _ in used} == set(PYTHON) - {"errors", "runtime"}
    assert _wrong(used, PYTHON) == []


def _wrong(used: set[tuple[str, str, Path]], order: list[str]) -> list[str]:
    return sorted(
        f"{path.relative_to(ROOT)} uses {other}"
        for folder, other, path in used
        if order.index(other) > order.index(folder)
    )


def _includes(path: Path) -> Iterator[tuple[str, str]]:
    folder = path.relative_to(ROOT / "runtime").parts[0]
    for other in re.findall(r'^#include "runtime/(\w+)/', path.read_text(encoding="utf-8"), re.MULTILINE):
        if other != folder:
            yield folder, other


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "mobile_ft" else ("mobile_ft", *parts))
    folder = _layer(name)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for other in map(_layer, names):
            if folder and other and other != folder:
                yield folder, other


def _layer(module: str) -> str:
    """That of PYTHON which the module is in; none of the package itself, which only passes on what users import."""
    below = module.removeprefix("mobile_ft.") if module.startswith("mobile_ft.") else ""
    found = [name for name in PYTHON if below == name or below.startswith(f"{name}.")]
    return max(found, key=len, default="")
