"""The documentation site: pages that come from the code name all that is there, and links lead to a page."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mobile_ft.runtime import generate_options, train_options

ROOT = Path(__file__).parents[2]


Site: TypeAlias = Callable[[str], Any]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Imports a module of tools/docs."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {"c_api", "command_line", "java", "links", "results"} - before:
        sys.modules.pop(name, None)


def test_commands(site: Site) -> None:
    page = site("command_line").commands()
    for command in ("export", "data", "plan", "train", "chat", "device pack", "device pull"):
        assert f"## mobile-ft {command}\n" in page
    assert "\nmobile-ft device run PACK (--adb [SERIAL] | --ssh HOST) [options]\n" in page
    assert re.search(r"^\| `--lora-rank N` \| .* \| 16 \|$", page, re.MULTILINE)
    assert "(options.md#step-options), [run options](options.md#run-options) and [data options]" in page
    chat = page[page.index("## mobile-ft chat") :].split("\n## ")[0]
    assert "`--adapter DIR`" in chat and "`--top-k" not in chat and "[generation options]" in chat


def test_options_are_in_one_table_each(site: Site) -> None:
    module = site("command_line")
    tables = [module.training_options("step"), module.training_options("run"), module.data_options()]
    for option in train_options():
        if not option.help:  # not for users: a run resolves it
            continue
        flag = f"| `--{option.name.replace('_', '-')}"
        assert sum(f"{flag}`" in table or f"{flag} " in table for table in tables) == 1, option.name
    generation = module.generation_options() + module.data_options()
    for option in generate_options():
        flag = f"| `--{option.name.replace('_', '-')}"
        assert f"{flag}`" in generation or f"{flag} " in generation, option.name
    assert re.search(r"^\| `--seq-len N` \| .* \| 256 \|$", tables[0], re.MULTILINE)
    assert re.search(r"^\| `--schedule` \| .*<br>One of `full`, .* \| full \|$", tables[0], re.MULTILINE)


def test_c_api(site: Site) -> None:
    page = site("c_api").reference()
    header = (ROOT / "runtime/c_api/mobile_ft.h").read_text()
    functions = re.findall(r"^MFT_API .*?\b(mft_\w+)\(", header, re.MULTILINE)
    assert len(functions) > 30
    headings = " ".join(line for line in page.splitlines() if line.startswith("### "))
    for function in functions:
        assert f"`{function}`" in headings
    assert "mft_training* training = NULL;" in page and "MFT_API" not in page


def test_java(site: Site) -> None:
    page = site("java").reference()
    for name in ("Bundle", "Dataset", "Trainer", "TrainingListener", "MobileFtException"):
        assert f"## {name}\n" in page
    assert "`boolean step(TrainingListener listener)`" in page and "`void onEvent(TrainingEvent event)`" in page
    assert "{@" not in page and "Native" not in re.findall(r"^## (\w+)", page, re.MULTILINE)


def test_results(site: Site) -> None:
    page = site("results").reference()
    assert "| `best_step` | `int \\| None` | the step with the lowest validation loss |" in page
    assert "### ConvertResult" in page


@pytest.mark.parametrize(
    ("uri", "link", "there"),
    [
        ("how-to/sign.md", "[a](../security.md#x)", "[a](../security.md#x)"),
        ("quality.md", "[README](../README.md)", "[README](index.md)"),
        ("tutorials/fleet.md", "[a](../../examples/federated/README.md#b)", "[a](../examples/federated.md#b)"),
        ("examples/federated.md", "[a](../../docs/reference/data.md)", "[a](../reference/data.md)"),
        ("reference/devices.md", "[devices.json](../../mobile_ft/api/devices.json)", "`mobile_ft/api/devices.json`"),
        ("index.md", "[a](https://example.org/x.md) `[a](b.md)`", "[a](https://example.org/x.md) `[a](b.md)`"),
        ("index.md", "[a](nowhere.md)", "[a](nowhere.md)"),
    ],
)
def test_links(site: Site, uri: str, link: str, there: str) -> None:
    assert site("links").for_site(link, uri) == there


def test_links_of_the_repository_lead_to_files(site: Site) -> None:
    """Also where they are read without the site."""
    links = site("links")
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]:
        for match in links._CODE_OR_LINK.finditer(page.read_text(encoding="utf-8")):
            to = match["to"]
            if to and not re.match(r"[a-z]+:|#", to):
                assert (page.parent / to.partition("#")[0]).exists(), f"{page}: {to}"
