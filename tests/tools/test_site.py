"""The documentation site: pages that come from the code name all that is there, and links lead to a page."""

import re
import sys
from pathlib import Path

import pytest

from mobile_ft.runtime import generate_options, train_options

ROOT = Path(__file__).parents[2]


@pytest.fixture
def site(monkeypatch):
    """Imports a module of tools/site."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "site"))
    names = ("c_api", "command_line", "java", "links", "results")
    yield lambda name: __import__(name)
    for name in names:
        sys.modules.pop(name, None)


def test_commands(site):
    page = site("command_line").commands()
    for command in ("export", "data", "plan", "train", "chat", "device pack", "device pull"):
        assert f"## mobile-ft {command}\n" in page
    assert "\nmobile-ft device run PACK (--adb [SERIAL] | --ssh HOST) [options]\n" in page
    assert "| `--lora-rank N` | 1 to 256 | 16 |" in page
    assert "(options.md#step-options), [run options](options.md#run-options) and [data options]" in page
    chat = page[page.index("## mobile-ft chat") :].split("\n## ")[0]
    assert "`--adapter DIR`" in chat and "`--top-k" not in chat and "[generation options]" in chat


def test_options_are_in_one_table_each(site):
    module = site("command_line")
    tables = [module.training_options("step"), module.training_options("run"), module.data_options()]
    for option in train_options():
        flag = f"--{option.name.replace('_', '-')}`"
        assert sum(flag in table for table in tables) == 1, option.name
    generation = module.generation_options() + module.data_options()
    assert all(f"--{option.name.replace('_', '-')}`" in generation for option in generate_options())
    assert "| `--seq-len` | N | 256 |" in tables[0]


def test_c_api(site):
    page = site("c_api").reference()
    header = (ROOT / "runtime/c_api/mobile_ft.h").read_text()
    functions = re.findall(r"^MFT_API .*?\b(mft_\w+)\(", header, re.MULTILINE)
    assert len(functions) > 30
    headings = " ".join(line for line in page.splitlines() if line.startswith("### "))
    for function in functions:
        assert f"`{function}`" in headings
    assert "mft_training* training = NULL;" in page and "MFT_API" not in page


def test_java(site):
    page = site("java").reference()
    for name in ("Bundle", "Dataset", "Trainer", "TrainingListener", "MobileFtException"):
        assert f"## {name}\n" in page
    assert "`boolean step(TrainingListener listener)`" in page and "`void onEvent(TrainingEvent event)`" in page
    assert "{@" not in page and "Native" not in re.findall(r"^## (\w+)", page, re.MULTILINE)


def test_results(site):
    page = site("results").reference()
    assert "| `best_step` | `int \\| None` | the step with the lowest validation loss |" in page
    assert "### ConvertResult" in page


@pytest.mark.parametrize(
    ("uri", "link", "there"),
    [
        ("how-to/sign.md", "[a](../security.md#x)", "[a](../security.md#x)"),
        ("architecture.md", "[a](python.md)", "[a](how-to/python.md)"),
        ("quality.md", "[README](../README.md)", "[README](index.md)"),
        ("tutorials/fleet.md", "[a](../../examples/federated/README.md#b)", "[a](../examples/federated.md#b)"),
        ("examples/federated.md", "[a](../../docs/reference/data.md)", "[a](../reference/data.md)"),
        ("reference/devices.md", "[devices.json](../../mobile_ft/api/devices.json)", "`mobile_ft/api/devices.json`"),
        ("index.md", "[a](https://example.org/x.md) `[a](b.md)`", "[a](https://example.org/x.md) `[a](b.md)`"),
        ("index.md", "[a](nowhere.md)", "[a](nowhere.md)"),
    ],
)
def test_links(site, uri, link, there):
    assert site("links").for_site(link, uri) == there


def test_links_of_the_repository_lead_to_files(site):
    """Also where they are read without the site."""
    links = site("links")
    for page in ROOT.glob("docs/*/*.md"):
        for match in links._CODE_OR_LINK.finditer(page.read_text(encoding="utf-8")):
            to = match["to"]
            if to and not re.match(r"[a-z]+:|#", to):
                assert (page.parent / to.partition("#")[0]).exists(), f"{page}: {to}"
