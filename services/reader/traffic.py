"""What went out to consumers, counted by answers; on the event loop."""

from __future__ import annotations

from services.metrics.exposition import REST, SERIES_MAX


class Traffic:
    """Records and bytes by topic and group, "" where a pull names no group; pairs beyond the most count as one."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self.record_count = 0
        self.size = 0

    def add(self, topic: str, group: str, record_count: int, size: int) -> None:
        """Count an answer of so many records and bytes."""
        counts = self._counts.get((topic, group))
        if counts is None:
            key = (topic, group) if len(self._counts) < SERIES_MAX else (REST, REST)
            counts = self._counts.setdefault(key, [0, 0])
        counts[0] += record_count
        counts[1] += size
        self.record_count += record_count
        self.size += size

    def counts(self) -> list[tuple[tuple[str, str], list[int]]]:
        """Return topic and group, with records and bytes; from any thread."""
        return list(self._counts.items())
