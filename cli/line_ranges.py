"""Numbers of lines as ranges: what a command says of lines, and takes back, as ``17,40-99,5000-``."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

SHOWN_MAX: Final = 40  # ranges that one line of text names
WITHOUT_END: Final = sys.maxsize  # the last line of a range that has none
_RANGES: Final = re.compile(r"[0-9]+(-[0-9]*)?(,[0-9]+(-[0-9]*)?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class LineRanges:
    """Lines by their numbers, the first line is 1: first and last lines of ranges, which rise and do not touch."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def joined(cls, ranges: Iterable[tuple[int, int]]) -> Self:
        """Return the lines of any ranges."""
        found: list[tuple[int, int]] = []
        for begin, end in sorted(ranges):
            if found and begin <= found[-1][1] + 1:
                found[-1] = found[-1][0], max(found[-1][1], end)
            else:
                found.append((begin, end))
        return cls(tuple(found))

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """Return some lines."""
        return cls.joined((number, number) for number in numbers)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a user typed; ValueError if that is not a list of ranges."""
        if not _RANGES.fullmatch(text):
            raise ValueError(f"{text!r} is not a list of lines such as 17,40-99,5000-")
        found = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            begin = int(first)
            end = int(last) if last else WITHOUT_END if dash else begin
            if not 0 < begin <= end:
                raise ValueError(f"{text!r}: lines begin with 1, and a range ends after it begins")
            found.append((begin, end))
        return cls.joined(found)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.ranges, (number, WITHOUT_END)) - 1
        return place >= 0 and number <= self.ranges[place][1]

    def after(self, number: int) -> Self:
        """Return those of the lines that come after one."""
        rest = ((max(begin, number + 1), end) for begin, end in self.ranges if end > number)
        return type(self)(tuple(rest))

    def shown(self) -> str:
        """Return the ranges for a line of text: the first of them, if they are many."""
        more = ",..." if len(self.ranges) > SHOWN_MAX else ""
        return f"{LineRanges(self.ranges[:SHOWN_MAX])}{more}"

    def __str__(self) -> str:
        return ",".join(
            f"{begin}" if begin == end else f"{begin}-{'' if end == WITHOUT_END else end}"
            for begin, end in self.ranges
        )
