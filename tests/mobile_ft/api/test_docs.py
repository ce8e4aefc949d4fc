"""The Python of README.md and docs/python.md runs as it stands, with a tiny model in the place of SmolLM2."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import mobile_ft

ROOT = Path(__file__).parents[3]


def python_blocks(page: Path) -> list[str]:
    """Each behind as many empty lines as make errors name the page's own lines."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


@pytest.mark.parametrize(("page", "blocks"), [("README.md", 1), ("docs/python.md", 11)])
def test_examples_run(
    page: str,
    blocks: int,
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
    assert len(found) == blocks
    names: dict[str, object] = {"__name__": "example"}
    for block in found:
        exec(compile(block, page, "exec"), names)
    shown = capsys.readouterr().out
    assert "20 steps of full at 64 tokens" in shown
    if page == "docs/python.md":
        assert (folder / "adapter" / "best" / "adapter_model.safetensors").is_file()
        assert "lerning_rate: no such option" in shown
        assert (folder / "peft-adapter" / "adapter_config.json").is_file()
