"""The Python of README.md and of docs/ runs as it stands, with a tiny model in the place of SmolLM2."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mobile_ft

ROOT = Path(__file__).parents[3]


# Pages with Python, and how many blocks each has.
PAGES = {"README.md": 1, "docs/index.md": 1, "docs/how-to/python.md": 9, "docs/how-to/pytorch.md": 2}
ELSEWHERE = {"docs/internals/adding_a_family.md"}  # by tests/runtime/test_wren.py


def python_blocks(page: Path) -> list[str]:
    """Each behind as many empty lines as make errors name the page's own lines."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


def test_every_page_with_python_runs() -> None:
    block = re.compile(r"^ *(```|~~~) *(python|py)\b", re.MULTILINE)
    pages = [page for page in ROOT.glob("docs/**/*.md") if block.search(page.read_text(encoding="utf-8"))]
    assert {page.relative_to(ROOT).as_posix() for page in pages} == PAGES.keys() - {"README.md"} | ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(
    page: str,
    model_config: Path,
    add_tokenizer: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    mobile_ft.export_bundle(model_config, "smollm2.bundle", random_init=True, max_seq_len=128)
    add_tokenizer(folder / "smollm2.bundle")
    found = python_blocks(ROOT / page)
    assert len(found) == PAGES[page]
    names: dict[str, Any] = {"__name__": "example"}
    for block in found:
        exec(compile(block, page, "exec"), names)
    shown = capsys.readouterr().out
    if page == "docs/how-to/pytorch.md":
        assert names["saved"].bytes > 0
        assert len(names["scheduled"].drop_rates) == 4
        return
    assert "20 steps of full at 64 tokens" in shown
    if page == "docs/how-to/python.md":
        assert (folder / "adapter" / "best" / "adapter_model.safetensors").is_file()
        assert "lerning_rate: unknown option" in shown
        assert (folder / "peft-adapter" / "adapter_config.json").is_file()
