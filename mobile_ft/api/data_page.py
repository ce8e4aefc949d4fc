"""The report of `inspect_data` as one self-contained HTML page."""

from html import escape

from mobile_ft.api.data import DataReport, SplitReport, histogram
from mobile_ft.data.row_view import RowView, Run

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; } td { padding: .2em 1em .2em 0; vertical-align: top; }
td:first-child { color: #666; white-space: nowrap; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; border-radius: 6px; padding: .8em; }
mark { background: #c9efcf; } del { color: #b33; } .where { color: #666; }
.bars { display: flex; align-items: flex-end; gap: 2px; height: 8em; border-bottom: 1px solid #999; }
.bars div { flex: 1; background: #4a7fb5; min-width: 2px; }
.axis { display: flex; justify-content: space-between; color: #666; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } pre { background: #262626; } mark { background: #1f5130; color: inherit; }
  del { color: #f0908a; }
}
"""


def data_page(report: DataReport) -> str:
    title, table = report.summary()
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in table.items())
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1><table>{cells}</table>",
        "<p><mark>Learned tokens</mark> are highlighted; <del>truncated tokens</del> are struck out.</p>",
    ]
    for name, split in report.splits.items():
        parts += [f"<h2>{escape(name)}</h2>", _bars(split), *(_row(row) for row in split.first_rows)]
        if split.bad_rows:
            rows = "".join(f"<li>{escape(bad)}" for bad in split.bad_rows)
            parts.append(f"<h3>Malformed rows</h3><ul>{rows}</ul>")
    if report.in_both:
        rows = "".join(f"<li>{escape(where)}" for where in report.in_both)
        parts.append(f"<h2>Rows of valid that are also in train</h2><ul>{rows}</ul>")
    return "\n".join(parts) + "\n"


def _bars(split: SplitReport) -> str:
    bins = histogram(split.lengths)
    if not bins:
        return ""
    most = max(count for _, _, count in bins)
    bars = "".join(
        f"<div style='height:{100 * count / most:.1f}%' title='{start} to {end - 1} tokens: {count:,} rows'></div>"
        for start, end, count in bins
    )
    return (
        f"<p>Number of rows by length in tokens. The highest bar is {most:,} rows.</p><div class=bars>{bars}</div>"
        f"<div class=axis><span>0</span><span>{bins[-1][1] - 1} tokens</span></div>"
    )


def _row(row: RowView) -> str:
    weight = "" if row.weight == 1 else f", weight {row.weight:g}"
    head = f"{row.where}: {row.form}, {row.learned:,} of {row.tokens:,} tokens learned{weight}"
    sides = "".join(f"<pre>{''.join(map(_run, side))}</pre>" for side in row.sides)
    return f"<p class=where>{escape(head)}</p>{sides}"


def _run(run: Run) -> str:
    text = escape(run.text)
    if run.learned:
        text = f"<mark>{text}</mark>"
    return f"<del>{text}</del>" if run.cut else text
