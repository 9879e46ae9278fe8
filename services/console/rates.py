"""Numbers as they were at some moments, and rates of them: what plots show. Taken while somebody looks."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final

KEPT: Final = 900  # moments of a series that is plotted
PLOTTED_MAX: Final = 64  # such series; beyond, the one looked at longest ago is forgotten
RATE_KEPT: Final = 10  # moments of any other
SERIES_MAX: Final = 5_000  # others
BETWEEN_MS: Final = 400  # moments that are closer count as one
GAP_MS: Final = 60_000  # nobody looked in between: no rate is drawn
Series = deque[tuple[int, Mapping[str, float]]]


class Rates:
    """Series of moments by name."""

    def __init__(self) -> None:
        self._plotted: OrderedDict[object, Series] = OrderedDict()
        self._others: OrderedDict[object, Series] = OrderedDict()

    def add(
        self, name: object, time_ms: int, numbers: Mapping[str, float], *, is_plotted: bool = False
    ) -> None:
        """Take the numbers of a moment; those of one answer count once."""
        table = self._plotted if is_plotted else self._others
        series = table.setdefault(name, deque(maxlen=KEPT if is_plotted else RATE_KEPT))
        table.move_to_end(name)
        while len(table) > (PLOTTED_MAX if is_plotted else SERIES_MAX):
            table.popitem(last=False)
        if series and time_ms - series[-1][0] < BETWEEN_MS:
            return
        series.append((time_ms, numbers))

    def _of(self, name: object) -> Series:
        found = self._plotted.get(name)
        return self._others.get(name, deque()) if found is None else found

    def rate(self, name: object, number: str, *, over_ms: int = 10_000) -> float | None:
        """Return by how much a number grew a second, over the last moments; None if there are not two."""
        series = self._of(name)
        if len(series) < 2:
            return None
        end_ms, end = series[-1]
        begin_ms, begin = next(
            moment
            for moment in reversed(series)
            if end_ms - moment[0] >= over_ms or moment is series[0]
        )
        if end_ms - begin_ms > GAP_MS:
            begin_ms, begin = series[-2]
        if end_ms - begin_ms > GAP_MS or number not in begin or number not in end:
            return None
        return max(0.0, (end[number] - begin[number]) * 1_000 / (end_ms - begin_ms))

    def plot(
        self, name: object, *, rates: tuple[str, ...], levels: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the series as columns for a plot: times in seconds, rates a second, and numbers as they were."""
        series = list(self._of(name))
        columns: dict[str, list[float | None]] = {key: [] for key in ("times", *rates, *levels)}
        for at, (time_ms, numbers) in enumerate(series):
            columns["times"].append(time_ms / 1_000)
            before_ms, before = series[at - 1] if at else (0, {})
            is_next = 0 < time_ms - before_ms <= GAP_MS
            if at and not is_next:  # a row of nothing, so that no line is drawn over it
                columns["times"].insert(-1, (before_ms + 1) / 1_000)
                for key in (*rates, *levels):
                    columns[key].append(None)
            for key in rates:
                known = is_next and key in numbers and key in before
                columns[key].append(
                    max(0.0, (numbers[key] - before[key]) * 1_000 / (time_ms - before_ms))
                    if known
                    else None
                )
            for key in levels:
                columns[key].append(numbers.get(key))
        return columns
