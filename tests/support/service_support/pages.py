"""README.md and docs/*.md taken apart: fenced blocks, and the commands that stand in them and in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
NOT_RUN = ("text", "js", "java", "go", "rust")  # drawings; clients that make clients-test runs
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; ``line`` is that of its first line in the page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a block of sh, without comments; a line that ends in ``\\`` goes on."""
        lines = self.text.replace("\\\n", "").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield Block(page, line, match[1], match[2])


def inline_code(page: str) -> list[str]:
    """What stands between backticks in the text of a page, outside its fenced blocks."""
    text = _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [found.replace("\\|", "|") for found in _INLINE.findall(text)]
