"""Which form a body is shown in, and how much of it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from penstock import Record
from services.bodies import hex_dump, indented, printable

SHOWN_MAX: Final = 64 << 10  # bytes; the rest is in the download
CELL_MAX: Final = 120  # characters of a body in a table
Form = Literal["text", "json", "hex"]


class ShownBody(NamedTuple):
    """A body as it is shown; ``problem`` is what is wrong with it, ``is_cut`` whether there is more."""

    text: str
    form: Form
    size: int
    is_cut: bool
    problem: str


def shown(record: Record, form: str) -> ShownBody:
    """Return a body in a form; "" chooses one that suits it."""
    body, problem = record.body_or_stored()
    if problem:
        problem = f"It cannot be unpacked: {problem}. This is how it is stored."
    head = body[:SHOWN_MAX]
    text = _text_of(head, is_cut=len(body) > SHOWN_MAX)
    chosen: Form = "hex" if form == "hex" or (text is None and form != "text") else "text"
    if form != "hex" and text is not None and form in ("", "json") and len(body) <= SHOWN_MAX:
        pretty = indented(text)
        if pretty is not None:
            return ShownBody(printable(pretty, keeps="\n\t"), "json", len(body), False, problem)
    if form == "json":
        problem = (
            problem
            or "It is no JSON object or array, or one that is too large or too deep to be shown as such."
        )
    if text is None and not problem:
        problem = "It is not UTF-8."
    if chosen == "hex":
        return ShownBody(hex_dump(head), "hex", len(body), len(body) > SHOWN_MAX, problem)
    plain = text if text is not None else head.decode(errors="backslashreplace")
    return ShownBody(
        printable(plain, keeps="\n\t"), "text", len(body), len(body) > SHOWN_MAX, problem
    )


def cell(record: Record) -> str:
    """Return the begin of a body on one line."""
    body, _ = record.body_or_stored()
    text = body[: CELL_MAX * 4].decode(errors="backslashreplace")
    text = printable(text[: CELL_MAX + 1])
    return f"{text[:CELL_MAX]}…" if len(text) > CELL_MAX or len(body) > CELL_MAX * 4 else text


def _text_of(head: bytes, *, is_cut: bool) -> str | None:
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if is_cut and len(head) - error.start < 4:  # within a character
            return head[: error.start].decode()
        return None
