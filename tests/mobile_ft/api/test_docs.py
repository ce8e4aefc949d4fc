"""The Python of README.md and of docs/ runs as it stands, with a tiny model in the place of SmolLM2."""

import re
from pathlib import Path

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


def test_every_page_with_python_runs():
    pages = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")}
    with_python = {
        page for page, text in pages.items() if re.search(r"^ *(```|~~~) *(python|py)\b", text, re.MULTILINE)
    }
    assert with_python == PAGES.keys() - {"README.md"} | ELSEWHERE


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page, model_config, add_tokenizer, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    mobile_ft.export_bundle(model_config, "smollm2.bundle", random_init=True, max_seq_len=128)
    add_tokenizer(folder / "smollm2.bundle")
    found = python_blocks(ROOT / page)
    assert len(found) == PAGES[page]
    names: dict[str, object] = {"__name__": "example"}
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
        assert "lerning_rate: no such option" in shown
        assert (folder / "peft-adapter" / "adapter_config.json").is_file()
