"""Bodies of messages as text: plain, as JSON with indents, or in hexadecimal. Nothing of them is ever run."""

from __future__ import annotations

import json
from typing import Final, Literal, NamedTuple

from penstock import Record, UnreadableBody

SHOWN_MAX: Final = 64 << 10  # bytes; the rest is in the download
CELL_MAX: Final = 120  # characters of a body in a table
HEX_WIDTH: Final = 16
Form = Literal["text", "json", "hex"]


class ShownBody(NamedTuple):
    """A body as it is shown; ``problem`` is what is wrong with it, ``is_cut`` whether there is more."""

    text: str
    form: Form
    size: int
    is_cut: bool
    problem: str


def body_of(record: Record) -> tuple[bytes, str]:
    """Return a record's body and "", or the body as it is stored and why it cannot be unpacked."""
    try:
        return record.body, ""
    except UnreadableBody as error:
        return (
            record.stored_body,
            f"It cannot be unpacked: {error.problem}. This is how it is stored.",
        )


def shown(record: Record, form: str) -> ShownBody:
    """Return a body in a form; "" chooses one that suits it."""
    body, problem = body_of(record)
    head = body[:SHOWN_MAX]
    text = _text_of(head, is_cut=len(body) > SHOWN_MAX)
    chosen: Form = "hex" if form == "hex" or (text is None and form != "text") else "text"
    if form != "hex" and text is not None and form in ("", "json") and len(body) <= SHOWN_MAX:
        pretty = _pretty(text)
        if pretty is not None:
            return ShownBody(pretty, "json", len(body), False, problem)
    if form == "json":
        problem = problem or "It is no JSON."
    if text is None and not problem:
        problem = "It is not UTF-8."
    if chosen == "hex":
        return ShownBody(hex_dump(head), "hex", len(body), len(body) > SHOWN_MAX, problem)
    plain = text if text is not None else head.decode(errors="backslashreplace")
    return ShownBody(printable(plain), "text", len(body), len(body) > SHOWN_MAX, problem)


def cell(record: Record) -> str:
    """Return the begin of a body on one line."""
    body, _ = body_of(record)
    text = body[: CELL_MAX * 4].decode(errors="backslashreplace")
    text = printable(text[: CELL_MAX + 1], keeps="")
    return f"{text[:CELL_MAX]}…" if len(text) > CELL_MAX or len(body) > CELL_MAX * 4 else text


def printable(text: str, *, keeps: str = "\n\t") -> str:
    """Return text with escapes for what a browser would hide or reorder."""
    return "".join(
        sign if sign in keeps or sign.isprintable() else repr(sign)[1:-1] for sign in text
    )


def hex_dump(data: bytes) -> str:
    """Return bytes as lines of an offset, hexadecimal digits and letters."""
    lines = []
    for at in range(0, len(data), HEX_WIDTH):
        part = data[at : at + HEX_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{HEX_WIDTH * 3 - 1}}  {letters}")
    return "\n".join(lines)


def _text_of(head: bytes, *, is_cut: bool) -> str | None:
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if is_cut and len(head) - error.start < 4:  # within a character
            return head[: error.start].decode()
        return None


def _pretty(text: str) -> str | None:
    try:
        value = json.loads(text)
        if not isinstance(value, dict | list):
            return None
        return printable(json.dumps(value, indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None
