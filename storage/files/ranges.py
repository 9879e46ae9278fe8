"""Ranges of a file that are wanted: sorted, joined where little lies between them, cut to requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from storage.files.protocol import Positions

Range = tuple[int, int]


def joined(begins: Positions, ends: Positions, gap_max: int) -> list[Range]:
    """Sort the ranges ``[begins, ends)`` and join those with up to ``gap_max`` bytes between them."""
    lows, highs = np.atleast_1d(begins), np.atleast_1d(ends)
    order = np.argsort(lows)
    order = order[lows[order] < highs[order]]
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    firsts = np.flatnonzero(np.concatenate(([True], lows[1:] > highs[:-1] + gap_max))[: len(lows)])
    lasts = np.append(firsts[1:] - 1, len(lows) - 1)[: len(firsts)]
    return list(zip(lows[firsts].tolist(), highs[lasts].tolist(), strict=True))


def grouped(ranges: Sequence[Range], part_bytes: int, group_bytes: int) -> Iterator[list[Range]]:
    """Cut ranges into parts of at most ``part_bytes`` and yield groups of them.

    The parts of a group take ``group_bytes`` together at most, one part at least.
    """
    group: list[Range] = []
    size = 0
    for low, high in ranges:
        for begin in range(low, high, part_bytes):
            part = (begin, min(begin + part_bytes, high))
            if group and size + part[1] - begin > group_bytes:
                yield group
                group, size = [], 0
            group.append(part)
            size += part[1] - begin
    if group:
        yield group
