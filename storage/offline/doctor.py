"""Findings about a store directory: what is damaged, what is odd, what was made good in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from storage.offline.lines import Line
from storage.offline.opened import open_offline


def doctor(directory: Path | str, spec: dict[str, Any] | Path | None = None) -> Iterator[Line]:
    """Yield findings ``{"severity", "file", "message"}``; severities are ok, note, warning, damage."""
    with open_offline(directory, spec) as store:
        yield {"severity": "ok", "file": "", "message": str(store.recovered.record_count)}
