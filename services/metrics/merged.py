"""The pages of several processes as one: each family once, with the samples of all."""

from __future__ import annotations

from collections.abc import Iterable


def merged(pages: Iterable[str]) -> bytes:
    """Return the pages as one; their samples differ by a label."""
    families: dict[str, list[str]] = {}
    for page in pages:
        lines: list[str] = []
        is_new = False
        for line in page.splitlines(keepends=True):
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                lines = families.setdefault(name, [])
                is_new = not lines
            if is_new or not line.startswith("#"):
                lines.append(line)
    return "".join("".join(lines) for lines in families.values()).encode()
