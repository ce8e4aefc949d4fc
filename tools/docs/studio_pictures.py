"""Takes the pictures of docs/how-to/studio.md: `python tools/docs/studio_pictures.py`. Needs chromium, and the extra
`browser`.

It uses a studio as a person does: exports SmolLM2, trains it on dialogues in 300 MB, twice, and asks both.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from mobile_ft.studio.workspace import Workspace

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
from dialogues import write_data  # noqa: E402

MINUTES = 5 * 60_000  # milliseconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        studio = Workspace(Path(folder) / "studio")
        write_data(Path(folder) / "dialogues")
        shutil.copy(Path(folder) / "dialogues" / "train.jsonl", studio.data / "dialogues.jsonl")
        shutil.copy(Path(folder) / "dialogues" / "valid.jsonl", studio.data / "held-out.jsonl")
        command = [sys.executable, "-m", "mobile_ft.cli.main", "studio", str(studio.folder), "--port=0", "--no-browser"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
            assert server.stdout is not None
            link = server.stdout.readline().split()[-1]
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            try:
                take(browser, link)
            finally:
                browser.close()
                server.send_signal(signal.SIGINT)


def take(browser: Browser, link: str) -> None:
    page = visit(browser, link, 1280, "light")
    page.get_by_label("Model", exact=True).fill("smollm2-135m")
    page.get_by_role("button", name="Add", exact=True).click()
    page.locator("#models").get_by_label("smollm2-135m").wait_for(timeout=MINUTES)
    page.get_by_role("link", name="Data").click()
    page.locator("#files").get_by_label("dialogues.jsonl").check()
    page.get_by_text("702 chat messages").wait_for()
    page.get_by_text("Add data").click()
    keep(page, "data")
    page.get_by_role("link", name="Budget").click()
    page.get_by_label("Memory in MB", exact=True).fill("220")
    page.get_by_label("Estimate for the phone").select_option("pixel-8")
    page.get_by_text("a step on pixel-8").wait_for()
    keep(page, "budget")
    page.get_by_role("link", name="Train").click()
    for name, rate in (("dialogues", "0.001"), ("slower", "0.0002")):
        page.get_by_role("spinbutton", name="Steps").fill("40")
        page.get_by_label("Learning rate", exact=True).fill(rate)
        page.get_by_label("Name of the run").fill(name)
        page.get_by_role("button", name="Start training").click()
        page.get_by_role("row", name=f"{name} smollm2-135m done").wait_for(timeout=MINUTES)
    page.get_by_label("show dialogues").check()
    page.wait_for_timeout(1000)
    keep(page, "train")
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("Question").fill("What is artificial intelligence?")
    page.get_by_role("checkbox", name="slower").check()
    page.get_by_role("checkbox", name="dialogues").check()
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("button", name="Like the answer of slower", exact=True).wait_for(timeout=MINUTES)
    page.get_by_role("button", name="Like the answer of dialogues", exact=True).wait_for(timeout=MINUTES)
    keep(page, "compare")
    narrow = visit(browser, link, 390, "dark")
    for section in ("Budget", "Train"):
        narrow.get_by_role("link", name=section).click()
        narrow.wait_for_timeout(2000)
        keep(narrow, f"{section.lower()}-phone")


def visit(browser: Browser, link: str, width: int, scheme: str) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(link)
    return page


def keep(page: Page, name: str) -> None:
    """Saves the top of the page, in as few bytes as 64 colours allow."""
    path = ROOT / "docs" / "images" / f"studio-{name}.png"
    page.screenshot(
        path=path, full_page=True, clip={"x": 0, "y": 0, "width": page.viewport_size["width"], "height": 1150}
    )
    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
