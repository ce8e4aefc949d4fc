"""Reports the layers that a schedule selected in a run, as one HTML file with a picture, a table and the data."""

import html
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mobile_ft.api.files import write_text
from mobile_ft.api.native import Event

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mobile-ft schedule</title>
<style>body {{ font: 14px/1.45 system-ui, sans-serif; margin: 24px auto; max-width: 1100px; padding: 0 16px; }}
svg {{ max-width: 100%; height: auto; }} td, th {{ padding: 1px 12px; text-align: right; }}
td:first-child, th:first-child {{ text-align: left; }}</style>
<h1>{title}</h1><p>{summary}</p>{picture}{table}
<script type="application/json" id="data">{data}</script></html>
"""


@contextmanager
def schedule_report(path: Path) -> Iterator[Callable[[Event], None]]:
    """Collects a run's events and writes the report when the run ends or fails. The report of a resumed run covers the
    steps since it resumed."""
    seen: dict[str, Any] = {"steps": []}

    def report(event: Event) -> None:
        kind = event["event"]
        if kind == "plan":
            seen.update(units=event["unit_names"], options=event["options"])
        elif kind == "step":
            seen["steps"].append({name: event[name] for name in ("step", "loss", "seconds", "trained")})
        elif kind == "sensitivities":
            seen.update({name: event[name] for name in ("sensitivities", "drop_rates")}, measured_at=event["step"])

    try:
        yield report
    finally:
        if seen["steps"]:
            write_text(path, _page(seen))


def _page(seen: dict[str, Any]) -> str:
    trained = np.array([[digit == "1" for digit in step["trained"]] for step in seen["steps"]])
    shares = trained.mean(axis=0)
    columns = {"unit": seen["units"], "share of steps trained": [f"{share:.2f}" for share in shares]}
    if "sensitivities" in seen:
        columns |= {
            "sensitivity": [f"{s:.3g}" for s in seen["sensitivities"]],
            "drop rate": [f"{rate:.1f}" for rate in seen["drop_rates"]],
        }
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    cells = ["".join(f"<{'td' if i else 'th'}>{html.escape(text)}" for text in row) for i, row in enumerate(rows)]
    data = json.dumps(seen, separators=(",", ":")).replace("<", "\\u003c")  # "<" could end the script
    return _PAGE.format(
        title=html.escape(f"Schedule {seen['options']['schedule']}"),
        summary=f"{len(trained)} steps, {len(shares)} units; on average {shares.sum():.1f} units trained per step.",
        picture=_picture(seen, trained),
        table="<table><tr>" + "<tr>".join(cells) + "</table>",
        data=data,
    )


def _picture(seen: dict[str, Any], trained: np.ndarray) -> str:
    """Draws the trained units by step as SVG, with the sensitivities beside it if they were measured."""
    from matplotlib.figure import Figure

    measured = "sensitivities" in seen
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True, width_ratios=[4, 1])
    if not measured:
        axes[1].remove()
    first = seen["steps"][0]["step"]
    extent = (first - 0.5, first + len(trained) - 0.5, -0.5, trained.shape[1] - 0.5)
    axes[0].imshow(trained.T, origin="lower", aspect="auto", interpolation="nearest", cmap="Greys", extent=extent)
    axes[0].set(xlabel="step", ylabel="unit, from the lowest", title="trained (dark)")
    if measured:
        axes[1].barh(range(len(seen["units"])), seen["sensitivities"], color="tab:orange")
        axes[1].set(xlabel="sensitivity", title=f"before step {seen['measured_at']}")
        rates = axes[1].twiny()
        rates.plot(seen["drop_rates"], range(len(seen["units"])), ".", color="tab:blue")
        rates.set(xlabel="drop rate (points)", xlim=(-0.05, 0.95))
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()[text.getvalue().index("<svg") :]
