"""Plots the held-out loss of a federated run by round."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mobile_ft.api.files import writing


def plot_rounds(records: Sequence[Mapping[str, Any]], path: Path, lines: Mapping[str, float] | None = None) -> None:
    """Plots each device's held-out loss, the mean, and `lines` for comparison, such as training on one device alone.

    Does nothing if no round has a held-out loss.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    seen = [record for record in records if "eval_loss" in record]
    if not seen:
        return
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    for node in sorted({node for record in seen for node in record["eval_clients"]}):
        points = [(r["round"], r["eval_clients"][node]) for r in seen if node in r["eval_clients"]]
        axes.plot(*zip(*points, strict=True), color="tab:blue", alpha=0.3, linewidth=1)
    axes.plot(
        [r["round"] for r in seen], [r["eval_loss"] for r in seen], color="tab:blue", linewidth=2, label="federated"
    )
    for (name, loss), color in zip((lines or {}).items(), ("tab:orange", "tab:green", "tab:red", "grey"), strict=False):
        axes.axhline(loss, color=color, linestyle="--", label=name)
    axes.set_xlabel("round")
    axes.set_ylabel("held-out loss")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    with writing(path):
        figure.savefig(path, metadata={"Date": None})
