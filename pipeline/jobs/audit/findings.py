"""What an audit finds: a few named in the report, all of them counted, all of them written if asked.

A finding is a row: ``kind``, ``problem`` and the place, of ``store``, ``topic``,
``queueId``, ``queueOffset``, ``physicalOffset``, ``size`` and ``file``. ``count`` stands where one
row is for several neighbours, the next units or the next records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TextIO

from storage.view.log.walk import DamagedRange

Finding = dict[str, Any]
NAMED_MAX: Final = 1000


def damaged_range(damage: DamagedRange) -> Finding:
    """Return the finding for a range of the log without intact records."""
    return {
        "kind": "record",
        "physicalOffset": damage.begin_offset,
        "size": damage.end_offset - damage.begin_offset,
        "problem": damage.reason,
    }


class Findings:
    """Findings of one task, or of all. Safe to pickle once closed."""

    def __init__(self, limit: int = NAMED_MAX, path: Path | None = None, store: str = "") -> None:
        """Keep up to ``limit``; with ``path`` all go into that file too, which appears on closing."""
        self.limit = limit
        self.store = store
        self.count = 0
        self.named: list[Finding] = []
        self._path = path
        self._file: TextIO | None = None

    def add(self, findings: Iterable[Finding], count: int | None = None) -> None:
        """Add findings; ``count`` is what they come to, if it is known without making them all."""
        added = 0
        for finding in findings:
            if count is not None and self._path is None and len(self.named) >= self.limit:
                break
            added += finding.get("count", 1)
            if len(self.named) < self.limit:
                self.named.append(finding)
            if self._path is not None:
                self._write(finding)
        self.count += added if count is None else count

    def take(self, others: Findings) -> None:
        """Add what a task found, which has written its own."""
        self.count += others.count
        self.named += others.named[: max(0, self.limit - len(self.named))]

    def _write(self, finding: Finding) -> None:
        assert self._path is not None
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("w", encoding="utf-8")
        self._file.write(json.dumps({"store": self.store, **finding}) + "\n")

    @property
    def _partial(self) -> Path:
        assert self._path is not None
        return self._path.with_name(f".{self._path.name}.{os.getpid()}")

    def close(self) -> None:
        """Give the file its name; without findings there is no file."""
        if self._file is not None:
            self._file.close()
            self._file = None
            assert self._path is not None
            self._partial.replace(self._path)
