"""The page in a browser: from a model's name to an adapter on disk. Needs Debian's Chromium, and Playwright's core."""

import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mobile_ft.studio.workspace import Workspace
from tests.mobile_ft.studio.serving import TOKEN, served

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]
SECTIONS = ("Model", "Data", "Budget", "Train", "Compare")
WIDTHS = {1280: "light", 390: "dark"}
Page: TypeAlias = Any  # Playwright, which need not be installed, has the types
Browser: TypeAlias = Any


class Visit:
    """A browser on a studio. It notes errors of the page, and requests that leave this computer."""

    def __init__(self, page: Page, studio: Workspace, port: int) -> None:
        self.page, self.studio, self.problems = page, studio, list[str]()
        local = f"http://127.0.0.1:{port}/"
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: None if _stays(request.url, local) else self.problems.append(request.url))
        page.goto(f"{local}?token={TOKEN}")

    def open(self, section: str) -> None:
        self.page.get_by_role("link", name=section, exact=True).click()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).click()

    def error(self) -> str:
        place = self.page.locator("#error")
        place.wait_for()
        return place.inner_text()


def _stays(url: str, local: str) -> bool:
    return url.startswith((local, "data:", "blob:"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def visit(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    studio = Workspace(tmp_path_factory.mktemp("studio") / "studio")
    with served(studio) as site:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(180_000)
        found = Visit(page, studio, site.port)
        yield found
        page.close()


def rows_file(folder: Path) -> Path:
    path = folder / "pirate.jsonl"
    rows = [{"prompt": f"What is {i}?", "completion": f"Ahoy! Number {i} it is, captain."} for i in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_whole_way(visit: Visit, tmp_path: Path) -> None:
    """A built-in model, 20 rows, 300 MB, ten steps, an answer that changed, an adapter to take away; then a second run,
    drawn over the first."""
    page = visit.page
    page.get_by_label("Model", exact=True).fill("smollm2-135m")
    visit.press("What is it?")
    page.get_by_text("134.5 M parameters").first.wait_for()
    visit.press("Add")
    page.locator("#models").get_by_label("smollm2-135m").wait_for()

    visit.open("Data")
    page.locator("#upload-form input").set_input_files(rows_file(tmp_path))
    visit.press("Upload")
    learned = page.locator("#look mark").nth(1)
    learned.wait_for()
    assert learned.inner_text().startswith("Ahoy! Number 0")

    visit.open("Budget")
    page.get_by_label("Memory in MB", exact=True).fill("300")
    page.get_by_text("budget 300MB").wait_for()
    page.get_by_label("Tokens per sequence").fill("128")
    page.get_by_role("img", name=re.compile("Memory by component: weights kept .* budget 300 MB")).wait_for()
    page.get_by_label("Estimate for the phone").select_option("pixel-8")
    page.get_by_text("a step on pixel-8").wait_for()

    visit.open("Train")
    page.get_by_role("spinbutton", name="Steps").fill("10")
    page.get_by_label("Name of the run").fill("pirate")
    page.get_by_text("The same on the command line").click()
    options = "--budget 300MB --seq-len 128 --steps 10"
    page.get_by_text(re.compile(f"mobile-ft train .*/runs/pirate .* {options}$")).wait_for()
    visit.press("Start training")
    page.get_by_role("row", name=re.compile("pirate smollm2-135m done")).wait_for()
    page.get_by_role("img", name=re.compile(r"Memory, MB; last pirate: \d+, pirate planned: \d+")).wait_for()
    done = json.loads((visit.studio.runs / "pirate" / "log.jsonl").read_text().splitlines()[-1])
    assert done["peak_rss_mb"] <= done["planned_mb"] <= 300 and done["peak_anon_mb"] <= done["planned_anon_mb"]

    visit.open("Compare")
    page.get_by_label("Question").fill("What is 5?")
    visit.press("Ask")
    page.get_by_role("button", name="Like the answer of pirate", exact=True).wait_for()
    base, tuned = (page.locator(".answer").nth(i).inner_text() for i in (0, 1))
    assert "Ahoy" in tuned and "Ahoy" not in base
    page.get_by_role("button", name="Like the answer of pirate", exact=True).click()
    page.get_by_text("1 rated; they are rows of thumbs.jsonl").wait_for()
    visit.press("PEFT (.zip)")
    with page.expect_download() as download:
        page.get_by_text("Download pirate-peft.zip").click()
    assert "adapter_model.safetensors" in zipfile.ZipFile(download.value.path()).namelist()

    visit.open("Train")
    page.get_by_role("spinbutton", name="Steps").fill("4")
    page.get_by_label("Learning rate", exact=True).fill("0.0001")
    page.get_by_label("Name of the run").fill("slower")
    visit.press("Start training")
    page.get_by_role("row", name=re.compile("slower smollm2-135m done")).wait_for()
    page.get_by_label("show pirate").check()
    page.get_by_role(
        "img", name=re.compile(r"Loss; last .*pirate: .*slower: |Loss; last .*slower: .*pirate: ")
    ).wait_for()
    assert visit.problems == []


def test_coming_back(visit: Visit) -> None:
    """A reload finds everything; a training that runs is paused and resumed."""
    page = visit.page
    visit.open("Train")
    page.get_by_role("spinbutton", name="Steps").fill("500")
    page.get_by_label("Name of the run").fill("long")
    visit.press("Start training")
    page.get_by_text(re.compile("long: step [2-9] of 500")).wait_for()
    page.reload()
    page.get_by_text(re.compile(r"long: step \d+ of 500, loss .* left")).wait_for()
    page.get_by_role("button", name="Pause long").click()
    page.get_by_role("row", name=re.compile("long smollm2-135m stopped")).wait_for()
    page.get_by_role("button", name="Resume long").click()
    page.get_by_role("row", name=re.compile("long smollm2-135m training")).wait_for()
    page.get_by_role("button", name="Pause long").click()
    page.get_by_role("row", name=re.compile("long smollm2-135m stopped")).wait_for()
    page.get_by_role("button", name="Remove long").click()
    page.get_by_role("row", name=re.compile("long")).wait_for(state="detached")
    assert visit.problems == []


def test_clear_messages(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    visit.open("Data")
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": \n')
    page.locator("#upload-form input").set_input_files(tmp_path / "broken.jsonl")
    visit.press("Upload")
    page.get_by_text("Rows that cannot be used (1):").wait_for()
    assert "broken.jsonl:2" in page.locator("#look").inner_text()
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    page.locator("#upload-form input").set_input_files(tmp_path / "image.png")
    visit.press("Upload")
    assert "image.png" in visit.error()
    page.get_by_label("Or its path on this computer").fill("/nowhere/rows.jsonl")
    visit.press("Open")
    assert visit.error() == "data /nowhere/rows.jsonl: does not exist"

    visit.open("Model")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    page.get_by_label("Model", exact=True).fill(str(tmp_path / "broken.gguf"))
    visit.press("What is it?")
    assert "broken.gguf" in visit.error()

    visit.open("Data")
    page.locator("#files").get_by_label("pirate.jsonl").check()
    visit.open("Budget")
    page.get_by_label("Memory in MB", exact=True).fill("20")
    page.get_by_text(re.compile(r"Too small: the smallest budget that works is \d+ MB")).wait_for()
    visit.open("Train")
    page.get_by_label("Name of the run").fill("tight")
    visit.press("Start training")
    page.get_by_text(re.compile("budget 20MB is too small")).wait_for()
    assert visit.problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_accessible(width: int, visit: Visit, browser: Browser) -> None:
    """axe-core finds nothing serious, and nothing is wider than the window."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=WIDTHS[width])
    context.add_cookies(visit.page.context.cookies())
    page = context.new_page()
    page.goto(visit.page.url.split("#")[0])
    for section in SECTIONS:
        page.get_by_role("link", name=section, exact=True).click()
        page.wait_for_load_state("networkidle")
        found = axe.Axe().run(page).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], section
        assert page.evaluate("document.documentElement.scrollWidth") <= width, section
    context.close()


def test_by_keyboard(visit: Visit) -> None:
    """Tab reaches the parts of the page in order, and Enter opens them."""
    page = visit.page
    page.goto(page.url.split("#")[0])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.get_by_role("heading", name="Choose a model").wait_for()
    page.reload()
    page.keyboard.press("Tab")
    for section in SECTIONS[:2]:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == section
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Choose data").wait_for()
