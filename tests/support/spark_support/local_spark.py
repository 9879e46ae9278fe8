"""Stands in for a Spark session where only its tasks matter: they run in this process, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class _Accumulator:
    def __init__(self, value: int) -> None:
        self.value = value

    def add(self, count: int) -> None:
        self.value += count


class _Tasks:
    def __init__(self, items: Sequence[Any], function: Callable[[Any], Any] | None = None) -> None:
        self._items = items
        self._function = function

    def map(self, function: Callable[[Any], Any]) -> _Tasks:
        return _Tasks(self._items, function)

    def collect(self) -> list[Any]:
        assert self._function is not None
        return [self._function(item) for item in self._items]


class _Context:
    defaultParallelism = 2

    def parallelize(self, items: Sequence[Any], _slices: int) -> _Tasks:
        return _Tasks(list(items))

    def accumulator(self, value: int) -> _Accumulator:
        return _Accumulator(value)

    def statusTracker(self) -> None:
        return None


class LocalSpark:
    """Runs ``sparkContext.parallelize(items, n).map(function).collect()``, and counts."""

    sparkContext = _Context()
