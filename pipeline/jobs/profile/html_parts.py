"""Parts of an HTML page: its style, sections, tables, and values as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #202428; background: #f4f5f7; margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; margin: 0 0 2px; }
h2 { font-size: 17px; margin: 0 0 2px; }
p.note { color: #5b636c; margin: 0 0 10px; }
section { background: #fff; border: 1px solid #e1e4e8; border-radius: 8px; padding: 18px 20px; margin: 18px 0; }
.figures { display: flex; flex-wrap: wrap; gap: 10px 36px; margin: 16px 0 0; }
.figures div { min-width: 110px; }
.figures b { display: block; font-size: 21px; font-weight: 600; }
.figures span { color: #5b636c; font-size: 13px; }
.pair { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 18px; }
@media (max-width: 900px) { .pair { grid-template-columns: minmax(0, 1fr); } }
.pair section { margin: 0; min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: #5b636c; font-weight: 500; border-bottom: 1px solid #d5d9de; padding: 5px 10px 5px 0; }
td { border-bottom: 1px solid #eef0f2; padding: 5px 10px 5px 0; }
td.n, th.n { text-align: right; white-space: nowrap; padding-left: 12px; font-variant-numeric: tabular-nums; }
td.name { word-break: break-all; }
.bad { color: #b3261e; }
"""


def section(title: str, note: str, content: str) -> str:
    """Return a titled part of the page; ``content`` is HTML, the others text."""
    return f"<section><h2>{escape(title)}</h2><p class='note'>{escape(note)}</p>{content}</section>"


def table(
    names: Sequence[str], rows: Iterable[Sequence[str]], bad: set[int], *, texts: int = 1
) -> str:
    """Return rows as a table whose first ``texts`` columns are text; ``bad`` rows end in red."""
    kinds = ["name" if at < texts else "n" for at in range(len(names))]
    head = "".join(
        f"<th class='{kind}'>{escape(name)}</th>" for name, kind in zip(names, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='{kind}{' bad' if number in bad and at == len(row) - 1 else ''}'>{escape(cell)}</td>"
            for at, (cell, kind) in enumerate(zip(row, kinds, strict=True))
        )
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def label(text: str, limit: int = 28) -> str:
    """Return a text for a plot, whose labels are read as HTML."""
    return escape(short(text, limit))


def short(text: str, limit: int) -> str:
    """Return a text with its middle left out where it is too long."""
    return text if len(text) <= limit else f"{text[: limit - 9]}…{text[-8:]}"


def moment(timestamp_ms: int) -> str:
    """Return a time in UTC."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def duration(milliseconds: int) -> str:
    """Return a span of time."""
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:.3g} {name}"
    return f"{milliseconds} ms"
