"""The HTML report in a real browser: a script that draws nothing, or dies half-way, would look fine as text."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mobile_ft.profile.limit import Limit
from mobile_ft.profile.recording import Call, Recording, Step
from mobile_ft.profile.report import html_report
from mobile_ft.profile.result import result_fields
from mobile_ft.profile.sampler import Buffer, Sample

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

# Says what is on each canvas: how many of its pixels are painted, and in how many colours.
PROBE = """<script>
for (const id of ["timeline", "units"]) {
  const canvas = document.getElementById(id);
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const painted = pixels.filter(p => p !== 0);
  canvas.title = JSON.stringify({painted: painted.length / pixels.length, colours: new Set(painted).size});
}
</script></html>"""


def report(samples: int = 50, budget_mb: float | None = 9.0) -> str:
    """Of a run of two steps over two units, with memory that rises."""
    plan = {
        **{"planned_mb": 8.0, "planned_anon_mb": 6.0, "anonymous": ["heap", "lora"], "checkpoints": 1, "offloaded": 0},
        **{"components_mb": {"code": 1.0, "weights_window": 1.0, "heap": 2.0, "lora": 4.0, "resident_weights": 0.0}},
        **{"resident_units": 0},
        **{"stored": {"attn": 1}, "units": {"attn": 1}},
    }
    recording = Recording(plan, [Buffer("lora", 0, 4_000_000)])
    for i in range(samples):
        lora = min(4_000_000, 100_000 * i)
        recording.samples.append(Sample(10 + i / 50, lora + 1_000_000, 1_500_000, 500_000, 100_000, 0, (lora,)))
    for step in range(2 if samples else 0):
        start = 10 + step / 2
        recording.steps.append(Step(step + 1, start, start + 0.5))
        for i, (unit, method) in enumerate([("attn", "attn_forward"), ("head", "head"), ("attn", "attn_backward")]):
            recording.calls.append(Call(unit, method, start + i / 10, start + (i + 1) / 10))
    names = {"model": "<model>", "mix": "mixed", "schedule": "full", "optimizer": "adamw", "backward": "auto"}
    result = result_fields(recording, Limit(), budget_mb, True) | names | {"batch_size": 2, "seq_len": 64}
    return html_report(recording, result)


def opened(page: str, tmp_path: Path) -> tuple[str, list[str]]:
    """The page's DOM once its scripts have run, and what went wrong on the console."""
    assert BROWSER is not None
    file = tmp_path / "report.html"
    file.write_text(page.replace("</html>", PROBE), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--user-data-dir={tmp_path / 'browser'}", "--window-size=1200,900", "--virtual-time-budget=2000"]
    command += ["--enable-logging=stderr", "--dump-dom", file.as_uri()]
    environment = os.environ | {"HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def canvases(dom: str) -> dict[str, dict[str, float]]:
    found = re.findall(r'<canvas id="(\w+)"[^>]* title="([^"]*)"', dom)
    return {name: json.loads(text.replace("&quot;", '"')) for name, text in found}


@needs_browser
def test_charts_are_drawn(tmp_path: Path) -> None:
    dom, complaints = opened(report(), tmp_path)
    assert complaints == []
    drawn = canvases(dom)
    assert drawn["timeline"]["painted"] > 0.2 and drawn["timeline"]["colours"] >= 5
    assert drawn["units"]["painted"] > 0.8 and drawn["units"]["colours"] >= 4
    assert "&lt;model&gt;, 2 steps of 2 x 64 tokens" in dom
    assert len(re.findall("<tr[^>]*><td", dom)) == 4 + 2  # components, totals
    assert re.findall("<button[^>]*>([^<]*)", dom) == ["all", "step 1", "step 2"]


@needs_browser
def test_a_run_that_died_at_once_has_a_report_too(tmp_path: Path) -> None:
    dom, complaints = opened(report(samples=0, budget_mb=None), tmp_path)
    assert complaints == []
    assert "0 steps of 2 x 64 tokens" in dom


@needs_browser
def test_script_errors_are_seen(tmp_path: Path) -> None:
    """The other tests would pass without a word where nothing is heard of the console."""
    _, complaints = opened(report().replace("drawUnits();", "drawNothing();"), tmp_path)
    assert any("drawNothing is not defined" in line for line in complaints)
