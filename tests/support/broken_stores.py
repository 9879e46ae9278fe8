"""Golden stores with something broken in a known place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flips import flip
from golden import golden_dump


def break_a_body(store: Path, name: str) -> dict[str, Any]:
    """Flip a bit in a body in the middle of the store; return the broker's line of its message."""
    lines = [line for line in golden_dump(name) if line["type"] == "message"]
    line = sorted(
        (line for line in lines if line["bodyLength"]), key=lambda line: line["commitLogOffset"]
    )[len(lines) // 2]
    for log in sorted((store / "commitlog").iterdir(), reverse=True):
        if int(log.name) <= line["commitLogOffset"]:
            flip(log, line["commitLogOffset"] - int(log.name) + 88)  # behind two IPv4 hosts
            return line
    raise AssertionError("no log file")
