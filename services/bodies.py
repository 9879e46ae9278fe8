"""What producers chose, as text that a terminal or a page shows as it is: it hides and steers nothing."""

from __future__ import annotations

import json
import re
from typing import Final

INDENTED_MAX: Final = 256 << 10  # characters: deep nesting makes indents grow far beyond the text
_WIDTH: Final = 16
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def printable(text: str, *, keeps: str = "") -> str:
    """Return text with escapes for what steers a terminal, or what a page would hide or reorder."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keeps else repr(c)[1:-1] for c in text)


def hex_dump(data: bytes) -> str:
    """Return bytes as lines of an offset, hexadecimal digits and letters."""
    lines = []
    for begin in range(0, len(data), _WIDTH):
        piece = data[begin : begin + _WIDTH]
        letters = "".join(chr(c) if 32 <= c < 127 else "." for c in piece)
        lines.append(f"{begin:08x}  {piece.hex(' '):<{3 * _WIDTH}} {letters}")
    return "\n".join(lines)


def indented(text: str) -> str | None:
    """Return a JSON object or array with a line and an indent for each value; its tokens stay as they are.

    None for anything else, and where it would be longer than INDENTED_MAX.
    """
    if len(text) > INDENTED_MAX or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts = []
    size = depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        closes = token in ("]", "}")
        depth -= closes
        lead = " " if before == ":" else ""
        if before == "," or (before in ("[", "{")) != closes:
            lead = f"\n{'  ' * depth}"
        parts.append(lead + token)
        size += len(parts[-1])
        if size > INDENTED_MAX:
            return None
        depth += token in ("[", "{")
        before = token
    return "".join(parts)
