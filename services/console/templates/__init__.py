"""Templates of the pages, and the words that they have for values."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from services.bodies import printable
from services.console.bodies import cell
from services.sizes import size_text

PERMISSIONS: Final = {0: "none", 2: "write", 4: "read", 6: "read, write"}
_TIME: Final = Markup('<time datetime="{iso}" title="{utc}">{utc}</time>')


def render(template: str, *, status: int = 200, **context: Any) -> Response:
    """Return a page as an answer."""
    text = _ENVIRONMENT.get_template(template).render(**context)
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def count_text(number: float | None, unit: str = "") -> str:
    """Return a number with commas; of small rates one digit after the point; a dash for None."""
    if number is None:
        return "–"
    text = f"{number:,.1f}" if isinstance(number, float) and 0 < number < 10 else f"{number:,.0f}"
    return f"{text}{unit}"


def size_or_dash(size: float | None) -> str:
    """Return bytes as people read them; a dash for None."""
    return "–" if size is None else size_text(size)


def duration_text(duration_ms: float | None) -> str:
    """Return milliseconds in the largest unit of which there is one."""
    if duration_ms is None:
        return "–"
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if duration_ms >= unit_ms:
            return f"{duration_ms / unit_ms:,.3g} {unit}"
    return f"{duration_ms:,.0f} ms"


def time_element(time_ms: int | None) -> Markup:
    """Return a moment, which the page's script writes in the browser's zone; a dash for none."""
    if not time_ms or time_ms < 0:
        return Markup("–")
    try:
        moment = datetime.fromtimestamp(time_ms // 1_000, UTC)
    except (OverflowError, OSError, ValueError):
        return Markup.escape(f"{time_ms} ms")
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1_000:03d}"
    return _TIME.format(iso=f"{text.replace(' ', 'T')}Z", utc=f"{text} UTC")


def in_address(name: str) -> str:
    """Return a name as part of an address."""
    return quote(name, safe="")


def _printable(value: object) -> object:
    """Return text with escapes for what a browser would hide or reorder: names, keys and properties are anybody's."""
    return printable(value, keeps="\n\t") if type(value) is str else value


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        count=count_text,
        size=size_or_dash,
        duration=duration_text,
        time=time_element,
        address=in_address,
        cell=cell,
    )
    made.globals.update(permissions=PERMISSIONS)
    return made


_ENVIRONMENT: Final = _environment()
