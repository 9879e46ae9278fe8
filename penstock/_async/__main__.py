"""``python -m penstock._async [DIRECTORY]``: the synchronous client, made from the asyncio one.

unasync drops ``async`` and ``await`` and renames what has another name without them; names of ours that
begin with Async lose that, in docstrings too. What waits differently in a thread and in an event loop
has the same methods in both forms, written by hand: ``penstock.channel``, ``penstock.consuming.in_flight``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import unasync

SOURCE: Final = Path(__file__).parent
TARGET: Final = SOURCE.with_name("_sync")
HEADER: Final = "# Written by make client from penstock/_async: change it there.\n"
NAMES: Final = {
    "_async": "_sync",
    "tasks": "threads",  # of penstock.producing
    "open_when_awaited": "open_at_once",
}
PHRASES: Final = {
    "The client for asyncio; `make client` writes ``penstock._sync`` from it.": "The client for threads.",
    "as an async context manager": "as a context manager",
    "the ``async with`` block": "the ``with`` block",
    '``async with client.transaction("orders") as t: await t.send(b"...")``': (
        '``with client.transaction("orders") as t: t.send(b"...")``'
    ),
    "; an async context manager": "; a context manager",
    "for one event loop": "safe to share between threads",
    "used by one task": "used by one thread",
    "are found when the first record is asked for": "are found when it is made",
}


def generate(target: Path) -> None:
    """Write the synchronous modules; those of an earlier run are replaced."""
    sources = [path for path in sorted(SOURCE.glob("*.py")) if path.name != "__main__.py"]
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    ours = set(re.findall(r"\bAsync[A-Z]\w*", "".join(texts.values())))
    ours -= {"AsyncIterator", "AsyncIterable", "AsyncGenerator"}
    names = {name: name.removeprefix("Async") for name in ours} | NAMES
    target.mkdir(parents=True, exist_ok=True)
    rule = unasync.Rule(f"{SOURCE}/", f"{target}/", names)
    unasync.unasync_files([str(path) for path in sources], [rule])
    for name in texts:
        path = target / name
        text = path.read_text(encoding="utf-8")
        for phrase, other in PHRASES.items():
            text = text.replace(phrase, other)
        for name_of_ours in ours:
            text = text.replace(f"`{name_of_ours}", f"`{names[name_of_ours]}")
        path.write_text(HEADER + text, encoding="utf-8")
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, target], check=True)  # noqa: S603


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
