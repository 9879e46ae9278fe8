"""The share of many like steps, bits, seeds or examples that a test tries: all of them with ``ALL_STEPS=1``.

``make faults``, ``make kill-test`` and ``make power-cuts`` set it. The share is the same in every run; the first and
the last are always of it. Tests that differ in a parameter count from another ``start``, so that neighbours differ.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from storage.testing import SimulatedDisk, StoppedRun, every_stop

ALL_STEPS = os.environ.get("ALL_STEPS", "0") not in ("", "0")
T = TypeVar("T")


def steps_to_try(steps: Sequence[T], every: int, *, start: int = 0) -> list[T]:
    """Return the first and the last of the steps and each ``every``-th, counted from number ``start``."""
    if ALL_STEPS:
        return list(steps)
    last = len(steps) - 1
    return [step for n, step in enumerate(steps) if n in (0, last) or n % every == start % every]


def cases_to_try(cases: Sequence[T], count: int = 1) -> list[T]:
    """Return the first ``count`` of like cases, such as modes, of which a lower layer tests each."""
    return list(cases if ALL_STEPS else cases[:count])


def examples_to_try(count: int, share: int) -> int:
    """Return how many random examples a test tries: the ``share``-th part of ``count``."""
    return count if ALL_STEPS else max(1, count // share)


def stops_to_try(
    directory: Path,
    work: Callable[[SimulatedDisk], object],
    every: int,
    *,
    start: int = 0,
    **options: Any,
) -> Iterator[StoppedRun]:
    """Yield what ``every_stop`` yields, of steps to try, and last the run that came to its end."""
    if ALL_STEPS:
        yield from every_stop(directory, work, **options)
        return
    disks: list[SimulatedDisk] = []

    def noted(disk: SimulatedDisk) -> object:
        disks.append(disk)
        return work(disk)

    def run(step: int) -> StoppedRun:
        return next(every_stop(directory, noted, step_stride=step, **options))

    run(sys.maxsize)
    for step in steps_to_try(range(1, disks[-1].step_count + 1), every, start=start):
        yield run(step)
    yield run(sys.maxsize)
