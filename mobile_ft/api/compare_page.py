"""The report of `compare` as one self-contained HTML page."""

from html import escape

from mobile_ft.api.results import ComparedRow, CompareResult

_MOST_ROWS = 20  # shown of the rows that changed most

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 68em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; white-space: nowrap; }
th, td { padding: .25em 1em .25em 0; text-align: left; }
td { font-variant-numeric: tabular-nums; } thead th { border-bottom: 1px solid #999; }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(18em, 1fr)); gap: 1em; }
.answers div { background: #f6f6f6; border-radius: 6px; padding: .8em; white-space: pre-wrap; overflow-wrap: anywhere; }
.answers b { display: block; color: #666; font-weight: normal; }
.better { color: #1d7a35; } .worse { color: #b33; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } .answers div { background: #262626; } .answers b { color: #aaa; }
  .better { color: #7fd493; } .worse { color: #f0908a; }
}
"""


def compare_page(result: CompareResult) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Comparison of adapters</title><style>{_STYLE}</style><h1>Comparison of adapters</h1>",
        f"<p>{len(result.rows):,} held-out rows. A lower loss is better.</p>",
        _table(["", "loss per token"], [[name, f"{loss:.4f}"] for name, loss in result.losses.items()]),
        "<h2>Change of a row's mean loss</h2>",
        _table(
            ["from", "to", "mean change", "95 % interval", "rows better", "rows worse"],
            [
                [d.one, d.other, f"{d.change:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}", str(d.better), str(d.worse)]
                for d in result.differences
            ],
        ),
        _rows(result),
    ]
    if result.answers:
        parts.append("<h2>Answers</h2>")
    for prompt, answers in result.answers.items():
        columns = zip(result.names, answers, strict=True)
        cells = "".join(f"<div><b>{escape(name)}</b>{escape(answer)}</div>" for name, answer in columns)
        parts.append(f"<h3>{escape(prompt)}</h3><div class=answers>{cells}</div>")
    return "\n".join(parts) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _rows(result: CompareResult) -> str:
    """The rows whose loss changed most from the first to the last side."""
    first, last = result.names[0], result.names[-1]

    def change(row: ComparedRow) -> float:
        return row.losses[last] - row.losses[first]

    rows = sorted(result.rows, key=lambda row: -abs(change(row)))[:_MOST_ROWS]
    body = "".join(
        f"<tr><td>{escape(row.where)}</td>"
        + "".join(f"<td>{row.losses[name]:.4f}</td>" for name in result.names)
        + f"<td class={'better' if change(row) < 0 else 'worse'}>{change(row):+.4f}</td></tr>"
        for row in rows
    )
    heads = "".join(f"<th>{escape(name)}</th>" for name in ["row", *result.names, "change"])
    title = f"<h2>Rows that changed most from {escape(first)} to {escape(last)}</h2>"
    return f"{title}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
